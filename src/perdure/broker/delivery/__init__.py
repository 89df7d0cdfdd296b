"""Connected sessions: what each is sent, reads from the log, and waits for."""
