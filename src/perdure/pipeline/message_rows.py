"""Rows of a log or an archive as messages: the inverse of ``pipeline.decode``."""

from __future__ import annotations

from typing import Any, Final

from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties

COLUMNS: Final = (
    "offset",
    "topic",
    "payload",
    "client_id",
    "published_at",
    "qos",
    "retain",
    "expires_at",
    "payload_format",
    "content_type",
    "response_topic",
    "correlation_data",
    "user_properties",
)
"""All that a message has."""

_TIMES: Final = ("published_at", "expires_at")


def messages(rows: Any) -> list[Message]:
    """The messages of an Arrow table, or batch, with ``COLUMNS`` among its columns."""
    found = {
        name: rows.column(name).cast("int64").to_pylist()
        if name in _TIMES
        else rows.column(name).to_pylist()
        for name in COLUMNS
    }
    return [
        Message(
            topic,
            payload,
            qos,
            retain,
            client_id,
            _properties(kind, content_type, response_topic, correlation_data, pairs),
            expires_at or 0,
            published_at,
            offset,
        )
        for (
            offset,
            topic,
            payload,
            client_id,
            published_at,
            qos,
            retain,
            expires_at,
            kind,
            content_type,
            response_topic,
            correlation_data,
            pairs,
        ) in zip(*(found[name] for name in COLUMNS), strict=True)
    ]


def _properties(
    payload_format: int | None,
    content_type: str | None,
    response_topic: str | None,
    correlation_data: bytes | None,
    pairs: list[dict[str, str]] | None,
) -> bytes:
    given = (payload_format, content_type, response_topic, correlation_data, pairs)
    if given == (None, None, None, None, None):
        return b""
    return forward_properties(
        Properties(
            payload_format_indicator=payload_format,
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            user_properties=tuple((each["name"], each["value"]) for each in pairs or ()),
        )
    )
