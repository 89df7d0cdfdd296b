"""What a record says besides the payload."""

from __future__ import annotations

from typing import Final

from perdure.forwarders.kafka.topic import OFFSET_HEADER, WRITER_HEADER
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward

OVERHEAD_BYTES: Final = 100
"""Of a record and its batch, besides key, value and headers, at most."""

Headers = list[tuple[str, str | bytes | None]]


def headers_of(message: Message, writer: str) -> Headers:
    """The headers of a record; user properties keep their order and may repeat."""
    headers: Headers = [
        (OFFSET_HEADER, b"%d" % message.offset),
        (WRITER_HEADER, writer.encode()),
        ("mqtt.topic", message.topic.encode()),
        ("mqtt.qos", b"%d" % message.qos),
        ("mqtt.retain", b"1" if message.retain else b"0"),
        ("mqtt.publisher", message.publisher.encode()),
    ]
    if not message.properties:
        return headers
    properties = properties_from_forward(message.properties)
    if properties.content_type is not None:
        headers.append(("mqtt.content_type", properties.content_type.encode()))
    if properties.response_topic is not None:
        headers.append(("mqtt.response_topic", properties.response_topic.encode()))
    if properties.correlation_data is not None:
        headers.append(("mqtt.correlation_data", properties.correlation_data))
    if properties.payload_format_indicator is not None:
        headers.append(("mqtt.payload_format", b"%d" % properties.payload_format_indicator))
    headers += [(f"mqtt.user.{name}", value.encode()) for name, value in properties.user_properties]
    return headers


def record_bytes(payload: bytes, key: str, headers: Headers) -> int:
    """The size of a record in Kafka, at most."""
    size = OVERHEAD_BYTES + len(payload) + len(key.encode())
    return size + sum(len(name) + len(value or b"") + 10 for name, value in headers)
