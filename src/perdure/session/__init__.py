"""The MQTT session as a value: what is owed, sent and settled. No I/O, no clock, no store.

Both directions are apart, each with packet identifiers of its own: ``outbound`` (the inflight
window, serial numbers, the cursor) and ``inbound`` (QoS 2 awaiting release). What a session gets of
the log is in ``subscriptions``, all that it is owed, in its order, in ``pending``, from rows that
``pending_pages`` is given; will and expiry rules are in ``will`` and ``expiry``.
"""
