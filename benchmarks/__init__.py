"""What Perdure promises in numbers, measured: run with ``make bench``.

Unlike ``perdure bench``, these may look inside: they use the storage room directly, or start the
broker and count what it holds. Each check writes what it found, met or not, into one record.
"""
