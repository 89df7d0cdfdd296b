"""TBMQ 1.x's tables, whatever release made them.

``device_publish_msg`` grew: 1.0 has no user properties, retain flag, expiry interval, payload
format and content type; 1.2 no response topic and correlation data. A column that is not there
reads as NULL. The order is ``serial_number``; the packet identifier may be NULL, may repeat, and
says nothing of the order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from perdure.mqtt.packets import Properties
from perdure.pipeline.tbmq.message_json import DamagedEntry, build_entry, parse_user_properties
from perdure.pipeline.tbmq.pending import PendingEntry

MESSAGES: Final = "device_publish_msg"
SESSIONS: Final = "device_session_ctx"

_REQUIRED: Final = ("client_id", "serial_number", "topic", "time", "qos", "payload")
_OPTIONAL: Final = {
    "packet_id": "integer",
    "packet_type": "varchar",
    "user_properties": "varchar",
    "retain": "boolean",
    "msg_expiry_interval": "integer",
    "payload_format_indicator": "integer",
    "content_type": "varchar",
    "response_topic": "varchar",
    "correlation_data": "bytea",
}
_LIGHT: Final = (
    "client_id",
    "serial_number",
    "packet_id",
    "packet_type",
    "time",
    "msg_expiry_interval",
)


def missing_columns(present: Collection[str]) -> list[str]:
    """Columns without which a table is not TBMQ's."""
    return [name for name in _REQUIRED if name not in present]


def select_list(present: Collection[str], *, light: bool = False) -> str:
    """The columns of an entry in SQL, NULL for those that a release does not have.

    Args:
        present: columns of the table.
        light: only what identifiers and expiry are found from.
    """
    names = _LIGHT if light else (*_REQUIRED, *_OPTIONAL)
    return ", ".join(
        name if name in present else f"NULL::{_OPTIONAL[name]} AS {name}" for name in names
    )


def lifetime_us(row: Mapping[str, Any], *, ttl_s: int) -> int:
    """When the queue forgets a row: its interval, or the limit for those without; 0 = never."""
    if row["packet_type"] == "PUBREL" or row["msg_expiry_interval"] is not None or not ttl_s:
        return 0
    return int(row["time"]) * 1000 + ttl_s * 1_000_000


def is_owed(row: Mapping[str, Any], *, ttl_s: int, now_us: int) -> bool:
    """Whether a row, of the light columns at least, is still to be delivered."""
    if row["packet_type"] == "PUBREL":
        return True
    interval = row["msg_expiry_interval"]
    if interval is not None:
        return int(row["time"]) * 1000 + int(interval) * 1_000_000 > now_us
    forget_at_us = lifetime_us(row, ttl_s=ttl_s)
    return not 0 < forget_at_us <= now_us


def parse_row(row: Mapping[str, Any], *, place: int, packet_id: int, ttl_s: int) -> PendingEntry:
    """The entry in a row.

    Args:
        row: all columns.
        place: ordinal in the queue.
        packet_id: the one that it will have.
        ttl_s: lifetime of messages without an expiry interval; 0 = for ever.

    Raises:
        DamagedEntry: MQTT does not know its values.
    """
    payload = row["payload"]
    if payload is None or row["topic"] is None:
        raise DamagedEntry("it has no topic or no payload")
    return build_entry(
        place=place,
        packet_id=packet_id,
        packet_type=row["packet_type"],
        topic=row["topic"],
        payload=bytes(payload),
        qos=row["qos"],
        retain=bool(row["retain"]),
        time_ms=int(row["time"]),
        expiry_s=row["msg_expiry_interval"],
        forget_at_us=lifetime_us(row, ttl_s=ttl_s),
        properties=Properties(
            payload_format_indicator=row["payload_format_indicator"],
            content_type=row["content_type"],
            response_topic=row["response_topic"],
            correlation_data=row["correlation_data"],
            user_properties=parse_user_properties(row["user_properties"]),
        ),
    )
