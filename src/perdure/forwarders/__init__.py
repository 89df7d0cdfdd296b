"""Forwarders: durable sessions of the broker itself, whose messages go to another system.

A forwarder reads the log from its cursor, in pages, and hands what fits to an *output* (a bridge to
another MQTT broker, Kafka, a webhook ...). The cursor is that of a session in the database, under
an epoch as any session's: it survives what sessions survive, and a second owner fences the first.
``forwarder`` is the mechanism, ``output`` what an output keeps, ``service`` all of a broker.

Invariant: the cursor never passes a message that is not safe at the target or refused for good.
"""
