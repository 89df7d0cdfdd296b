"""What TBMQ has stored for its persistent clients, read as it stands.

TBMQ 1.x keeps device queues in two PostgreSQL tables, TBMQ 2.x in Redis keys. The modules here are
plain functions over rows, keys and values: they know no server, no Spark and no Perdure store, and
they change nothing. What comes out is ``owed``: the queues in one form, whatever wrote them.
"""
