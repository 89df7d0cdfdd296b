"""A package, not a mere folder: a client library that tests use installs one of this name."""
