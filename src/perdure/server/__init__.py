"""The process: what is started and stopped in which order, signals, and the service manager."""
