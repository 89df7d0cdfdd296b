"""What a record says besides the payload."""

from __future__ import annotations

from typing import Final, TypeAlias, final

from perdure.forwarders.kafka.topic import OFFSET_HEADER, WRITER_HEADER
from perdure.model import Message
from perdure.mqtt.encode import properties_from_forward

OVERHEAD_BYTES: Final = 100
"""Of a record and its batch, besides key, value and headers, at most."""
_FIXED_BYTES: Final = 1000
"""Of a record without properties, besides payload, key, topic and publisher, at most."""
_CHARACTER_BYTES: Final = 4

HeaderList: TypeAlias = list[tuple[str, str | bytes | None]]

_QOS: Final = tuple(("mqtt.qos", b"%d" % qos) for qos in range(3))
_RETAIN: Final = (("mqtt.retain", b"0"), ("mqtt.retain", b"1"))


@final
class Headers:
    """Makes the headers of records; user properties keep their order and may repeat.

    Args:
        writer: value of ``WRITER_HEADER``.
    """

    __slots__ = ("_writer",)

    def __init__(self, writer: str) -> None:
        self._writer = (WRITER_HEADER, writer.encode())

    def __call__(self, message: Message) -> HeaderList:
        """Of one message."""
        headers: HeaderList = [
            (OFFSET_HEADER, b"%d" % message.offset),
            self._writer,
            ("mqtt.topic", message.topic),
            _QOS[message.qos],
            _RETAIN[message.retain],
            ("mqtt.publisher", message.publisher),
        ]
        if message.properties:
            _add_properties(headers, message.properties)
        return headers


def _add_properties(headers: HeaderList, forward: bytes) -> None:
    properties = properties_from_forward(forward)
    if properties.content_type is not None:
        headers.append(("mqtt.content_type", properties.content_type))
    if properties.response_topic is not None:
        headers.append(("mqtt.response_topic", properties.response_topic))
    if properties.correlation_data is not None:
        headers.append(("mqtt.correlation_data", properties.correlation_data))
    if properties.payload_format_indicator is not None:
        headers.append(("mqtt.payload_format", b"%d" % properties.payload_format_indicator))
    headers += [(f"mqtt.user.{name}", value) for name, value in properties.user_properties]


def is_larger(
    message: Message, payload: bytes, key: str, headers: HeaderList, bytes_max: int
) -> bool:
    """Whether a record is larger than a topic takes; counted exactly only where it is near."""
    if not message.properties:
        characters = len(key) + len(message.topic) + len(message.publisher)
        if len(payload) + _CHARACTER_BYTES * characters + _FIXED_BYTES <= bytes_max:
            return False
    return record_bytes(payload, key, headers) > bytes_max


def record_bytes(payload: bytes, key: str, headers: HeaderList) -> int:
    """The size of a record in Kafka, at most."""
    size = OVERHEAD_BYTES + len(payload) + len(key.encode())
    for name, value in headers:
        size += len(name.encode()) + 10
        if value is not None:
            size += len(value.encode() if isinstance(value, str) else value)
    return size
