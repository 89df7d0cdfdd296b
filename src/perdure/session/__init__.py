"""The MQTT session as a value: what is owed, sent and settled. No I/O, no clock, no store.

Both directions are apart, each with packet identifiers of its own: ``outbound`` (the inflight
window, serial numbers, the cursor) and ``inbound`` (QoS 2 awaiting release). What the session
wants to receive is in ``interest``; will and expiry rules are in ``will`` and ``expiry``.
"""
