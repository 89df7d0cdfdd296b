"""Programs to learn from; each folder is one, run with `python -m examples.NAME`."""
