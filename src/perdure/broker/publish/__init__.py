"""What comes in: log, retained store and dispatch, as one batch."""
