"""``perdure bench persistence``: what it costs to keep messages for clients, store beside store.

The comparison of TBMQ's own papers: a message for one client is persisted, fetched and
acknowledged, which is one *cycle*, on PostgreSQL, on Redis with a client that waits for each reply,
on Redis with one that does not, and on what Perdure adds: the compact layout and the embedded log.

It measures stores, not brokers, and drives the classes that the broker does: hence a room of its
own beside ``bench``, which knows a broker by its wire alone. ``contestants`` imports the stores
when it starts them, on servers that run already or that ``servers`` starts.
"""
