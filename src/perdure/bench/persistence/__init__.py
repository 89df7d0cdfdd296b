"""``perdure bench persistence``: what it costs to keep messages for clients, store beside store.

The comparison of TBMQ's own papers: a message for one client is persisted, fetched and
acknowledged, which is one *cycle*, on PostgreSQL, on Redis with a client that waits for each reply,
on Redis with one that does not, and on what Perdure adds: the compact layout and the embedded log.

This package is the one exception to the rule that ``bench`` knows no store: it measures stores,
not brokers, and drives the same classes that the broker does. ``contestants`` alone imports them,
when it starts them.
"""
