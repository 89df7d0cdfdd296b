"""Jobs over the log, one file each."""
