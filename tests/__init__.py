"""A package, not a mere directory: a client library that tests use installs one of the same name."""
