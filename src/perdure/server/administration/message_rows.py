"""Messages as they are shown."""

from __future__ import annotations

import msgspec

from perdure.admin.records.messages import MessageHead, MessageRow
from perdure.config.units import format_time
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward


def message_head(message: Message, *, skew_us: int = 0) -> MessageHead:
    """A message without its payload.

    Args:
        message: of the log, or retained.
        skew_us: what the wall clock is ahead of steady time.
    """
    expires_at_us = message.expires_at_us
    head = MessageHead(
        offset=message.offset,
        topic=message.topic,
        qos=message.qos,
        retain=message.retain,
        publisher=message.publisher,
        published_at=format_time(message.published_at_us),
        published_at_us=message.published_at_us,
        expires_at=format_time(expires_at_us + skew_us) if expires_at_us else None,
        expires_at_us=expires_at_us + skew_us if expires_at_us else None,
        payload_bytes=len(message.payload),
    )
    if not message.properties:
        return head
    found = properties_from_forward(message.properties)
    return msgspec.structs.replace(
        head,
        payload_format_indicator=found.payload_format_indicator,
        content_type=found.content_type,
        response_topic=found.response_topic,
        correlation_data=found.correlation_data,
        user_properties=[(name, value) for name, value in found.user_properties],
    )


def message_row(message: Message, *, skew_us: int = 0) -> MessageRow:
    """A message with its payload."""
    try:
        text: str | None = message.payload.decode()
    except UnicodeDecodeError:
        text = None
    head = message_head(message, skew_us=skew_us)
    return MessageRow(**msgspec.structs.asdict(head), payload=message.payload, payload_text=text)
