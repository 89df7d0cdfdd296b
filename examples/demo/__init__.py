"""The main job on real clients: `make demo`."""
