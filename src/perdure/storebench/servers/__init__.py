"""Real servers for measurements and tests: in temporary folders, on free ports, ours to kill."""
