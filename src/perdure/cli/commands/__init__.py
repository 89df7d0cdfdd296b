"""One module for each command; each has a click command named ``command``."""
