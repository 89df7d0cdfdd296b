"""Queues as lines of JSON: what ``perdure queues export`` writes, and any program can read.

::

    {"client_id", "packet_id", "topic", "qos", "retain", "payload_base64", "properties",
     "expires_at", "state"}                      one for each entry, in delivery order
    {"client_id", "last_packet_id"}              one for each session, after its entries

``properties`` has what was published, absent = not sent: ``user_properties`` as pairs,
``content_type``, ``response_topic``, ``correlation_data`` in base64, ``payload_format_indicator``,
``message_expiry_interval`` in seconds as it was published, ``subscription_identifiers``.
``expires_at`` is in milliseconds since the epoch, null = never: the end of the Message Expiry
Interval or of the lifetime that the queue gives it, whichever is first. ``packet_id`` is null
where none was ever assigned. ``state`` is PUBLISH or PUBREL.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from perdure.mqtt.encode import properties_from_forward
from perdure.storage.device_queue import QueuedEntry

_SECOND_US: Final = 1_000_000


def entry_line(client_id: str, entry: QueuedEntry) -> dict[str, Any]:
    """An entry as the object of its line."""
    message = entry.message
    ends = [at for at in (message.expires_at_us, entry.forget_at_us) if at]
    return {
        "client_id": client_id,
        "packet_id": entry.packet_id or None,
        "topic": message.topic,
        "qos": entry.qos,
        "retain": entry.retain,
        "payload_base64": base64.b64encode(message.payload).decode(),
        "properties": properties_of(entry),
        "expires_at": min(ends) // 1000 if ends else None,
        "state": entry.state.name,
    }


def session_line(client_id: str, last_packet_id: int) -> dict[str, Any]:
    """What a queue counts, apart from its entries, as the object of its line."""
    return {"client_id": client_id, "last_packet_id": last_packet_id}


def properties_of(entry: QueuedEntry) -> dict[str, Any]:
    """The properties to deliver with, those that are not sent left out."""
    message = entry.message
    found: dict[str, Any] = {}
    if message.properties:
        properties = properties_from_forward(message.properties)
        correlation = properties.correlation_data
        found = {
            "user_properties": [list(pair) for pair in properties.user_properties] or None,
            "content_type": properties.content_type,
            "response_topic": properties.response_topic,
            "correlation_data": None
            if correlation is None
            else base64.b64encode(correlation).decode(),
            "payload_format_indicator": properties.payload_format_indicator,
        }
    if message.expires_at_us:
        lifetime_us = max(0, message.expires_at_us - message.published_at_us)
        found["message_expiry_interval"] = -(-lifetime_us // _SECOND_US)
    found["subscription_identifiers"] = list(entry.identifiers) or None
    return {name: value for name, value in found.items() if value is not None}
