"""Backups: a data directory at one position, kept elsewhere, and brought back.

A room beside ``broker``: it reads and writes directories through ``storage.rocksdb`` and knows no
broker. Whatever runs it (a command, the process that a broker starts for it, an HTTP process) does
so beside the broker, which notices nothing.
"""
