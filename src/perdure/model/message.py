"""The application message, as every room sees it."""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr


@final
@mypyc_attr(acyclic=True)
class Message:
    """One application message.

    Attributes:
        topic: topic name, valid UTF-8 without wildcards.
        payload: application bytes.
        qos: 0, 1 or 2, as published.
        retain: the RETAIN flag, as published.
        publisher: client id of the publisher; empty for the broker's own messages.
        properties: MQTT 5.0 properties that are forwarded unaltered, in wire form without the
            length prefix: payload format indicator, content type, response topic, correlation
            data, user properties. Message expiry, topic alias and subscription identifiers are
            never in here.
        expires_at_us: steady time (``clock.SteadyClock``) after which it is not delivered any
            more; 0 = never.
        published_at_us: wall time at which the broker took it.
        offset: position in the log; 0 while (or because) it is not recorded.
    """

    __slots__ = (
        "expires_at_us",
        "offset",
        "payload",
        "properties",
        "published_at_us",
        "publisher",
        "qos",
        "retain",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        publisher: str = "",
        properties: bytes = b"",
        expires_at_us: int = 0,
        published_at_us: int = 0,
        offset: int = 0,
    ) -> None:
        self.topic: str = topic
        self.payload: bytes = payload
        self.qos: int = qos
        self.retain: bool = retain
        self.publisher: str = publisher
        self.properties: bytes = properties
        self.expires_at_us: int = expires_at_us
        self.published_at_us: int = published_at_us
        self.offset: int = offset

    def held_bytes(self) -> int:
        """About what it takes of memory: a payload of one byte may have a topic of 60,000."""
        return len(self.payload) + len(self.properties) + len(self.topic)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (
            self.topic == other.topic
            and self.payload == other.payload
            and self.qos == other.qos
            and self.retain == other.retain
            and self.publisher == other.publisher
            and self.properties == other.properties
            and self.expires_at_us == other.expires_at_us
            and self.published_at_us == other.published_at_us
            and self.offset == other.offset
        )

    def __reduce__(self) -> tuple[type[Message], tuple[object, ...]]:
        """How to copy and pickle it; a compiled class cannot be made empty and filled later."""
        return Message, (
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.publisher,
            self.properties,
            self.expires_at_us,
            self.published_at_us,
            self.offset,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Message({self.topic!r}, {len(self.payload)} B, qos={self.qos}, "
            f"retain={self.retain}, publisher={self.publisher!r}, offset={self.offset})"
        )
