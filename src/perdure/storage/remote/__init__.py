"""A broker's whole durable state in a server: the part that every server shares.

Named for where the data are; ``perdure.server`` is the broker's own process.
"""
