"""The command line: parses, calls the floors below, prints, and sets the exit code."""
