"""Topics: names, filters, matching, shared subscriptions and the log's learned structure.

Pure: no I/O, no clock, no chance of its own.
"""
