"""The pipeline as a process: which job is due, who may run it, and how it is going."""
