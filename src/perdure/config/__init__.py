"""The configuration: its sections in ``config.schema``, and in ``config.load`` how it is read.

Rooms that only hold a section do not pay for loading a YAML parser.
"""
