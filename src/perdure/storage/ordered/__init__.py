"""One order for the batches of several nodes: the log that they share, and a view of it."""
