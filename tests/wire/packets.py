"""MQTT packets as bytes, built without any code of the broker.

The builders check nothing, so that every packet can also be built wrongly: any flags, any
length, any property anywhere. Nothing here may import ``perdure``; an error in the broker's
codec must not be able to hide in its own tests.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

Value = int | str | bytes | tuple[str, str]
"""A property's value: integer, string, binary, or the pair of a User Property."""

Properties = Iterable[tuple[int, Value]] | bytes
"""Properties in order, or raw bytes that stand for the whole field, its length included."""


class Kind(enum.IntEnum):
    """Control packet types (section 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Prop(enum.IntEnum):
    """Property identifiers of MQTT 5.0 (section 2.2.2.2)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTH_METHOD = 0x15
    AUTH_DATA = 0x16
    REQUEST_PROBLEM_INFO = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFO = 0x19
    RESPONSE_INFO = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAX = 0x21
    TOPIC_ALIAS_MAX = 0x22
    TOPIC_ALIAS = 0x23
    MAX_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER = 0x26
    MAX_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


class Reason(enum.IntEnum):
    """Reason codes of MQTT 5.0 that the cases name (section 2.4)."""

    SUCCESS = 0x00
    WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION = 0x11
    CONTINUE = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_INVALID = 0x85
    BAD_CREDENTIALS = 0x86
    NOT_AUTHORIZED = 0x87
    BANNED = 0x8A
    SHUTTING_DOWN = 0x8B
    BAD_AUTH_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    TAKEN_OVER = 0x8E
    FILTER_INVALID = 0x8F
    TOPIC_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAX_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SHARED_NOT_SUPPORTED = 0x9E
    SUBSCRIPTION_ID_NOT_SUPPORTED = 0xA1
    WILDCARD_NOT_SUPPORTED = 0xA2


BYTE_PROPERTIES = frozenset({0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A})
TWO_PROPERTIES = frozenset({0x13, 0x21, 0x22, 0x23})
FOUR_PROPERTIES = frozenset({0x02, 0x11, 0x18, 0x27})
VARINT_PROPERTIES = frozenset({0x0B})
STRING_PROPERTIES = frozenset({0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F})
BINARY_PROPERTIES = frozenset({0x09, 0x16})

# --- primitives -------------------------------------------------------------------------


def varint(number: int, width: int = 0) -> bytes:
    """A variable byte integer; ``width`` forces an over-long form."""
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        last = number == 0 and len(out) + 1 >= width
        out.append(low if last else low | 0x80)
        if last:
            return bytes(out)


def u16(number: int) -> bytes:
    """Two bytes, big-endian."""
    return number.to_bytes(2, "big")


def text(value: str | bytes) -> bytes:
    """A string or binary with its two-byte length; bytes go in as they are, UTF-8 or not."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return u16(len(raw)) + raw


def packet(first: int, body: bytes = b"", *, length: int | bytes | None = None) -> bytes:
    """Any packet: its first byte, its body, and on request a length that lies."""
    if isinstance(length, bytes):
        return bytes([first]) + length + body
    return bytes([first]) + varint(len(body) if length is None else length) + body


def prop(identifier: int, value: Value) -> bytes:
    """One property; bytes for one that is not binary are taken as already encoded."""
    if isinstance(value, tuple):
        encoded = text(value[0]) + text(value[1])
    elif isinstance(value, str) or (identifier in BINARY_PROPERTIES and isinstance(value, bytes)):
        encoded = text(value)
    elif isinstance(value, bytes):
        encoded = value
    elif identifier in VARINT_PROPERTIES:
        encoded = varint(value)
    else:
        width = 1 if identifier in BYTE_PROPERTIES else 2 if identifier in TWO_PROPERTIES else 4
        encoded = value.to_bytes(width, "big")
    return varint(identifier) + encoded


def props(properties: Properties) -> bytes:
    """The property field, its length included."""
    if isinstance(properties, bytes):
        return properties
    body = b"".join(prop(identifier, value) for identifier, value in properties)
    return varint(len(body)) + body


@final
@dataclass(frozen=True, kw_only=True)
class Will:
    """The will part of a CONNECT."""

    topic: str | bytes
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


# --- builders ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Packets:
    """Builders for one protocol version: 4 is MQTT 3.1.1, 5 is MQTT 5.0."""

    version: int

    def _props(self, properties: Properties) -> bytes:
        return props(properties) if self.version >= 5 else b""

    def connect(
        self,
        client_id: str | bytes = "",
        *,
        clean: bool = True,
        keep_alive: int = 60,
        will: Will | None = None,
        username: str | bytes | None = None,
        password: str | bytes | None = None,
        properties: Properties = (),
        protocol: str | bytes = "MQTT",
        level: int | None = None,
        flags: int | None = None,
        first: int = 0x10,
    ) -> bytes:
        """CONNECT; ``flags``, ``level`` and ``first`` replace what the rest would give."""
        made = 0x02 if clean else 0
        payload = text(client_id)
        if will is not None:
            made |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
            payload += self._props(will.properties) + text(will.topic) + text(will.payload)
        if username is not None:
            made |= 0x80
            payload += text(username)
        if password is not None:
            made |= 0x40
            payload += text(password)
        head = text(protocol) + bytes([self.version if level is None else level])
        head += bytes([made if flags is None else flags]) + u16(keep_alive)
        return packet(first, head + self._props(properties) + payload)

    def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        *,
        qos: int = 0,
        packet_id: int | None = None,
        retain: bool = False,
        dup: bool = False,
        properties: Properties = (),
    ) -> bytes:
        """PUBLISH; a packet identifier is written when given or when the QoS needs one."""
        first = 0x30 | (0x08 if dup else 0) | qos << 1 | (1 if retain else 0)
        if packet_id is None and qos:
            packet_id = 1
        identifier = b"" if packet_id is None else u16(packet_id)
        return packet(first, text(topic) + identifier + self._props(properties) + payload)

    def ack(
        self,
        kind: int,
        packet_id: int,
        reason: int | None = None,
        properties: Properties | None = None,
        *,
        flags: int | None = None,
    ) -> bytes:
        """PUBACK, PUBREC, PUBREL or PUBCOMP; the short form unless a reason is given."""
        if flags is None:
            flags = 2 if kind == Kind.PUBREL else 0
        body = u16(packet_id)
        if reason is not None:
            body += bytes([reason])
        if properties is not None:
            body += props(properties)
        return packet(kind << 4 | flags, body)

    def puback(self, packet_id: int, reason: int | None = None) -> bytes:
        """PUBACK."""
        return self.ack(Kind.PUBACK, packet_id, reason)

    def pubrec(self, packet_id: int, reason: int | None = None) -> bytes:
        """PUBREC."""
        return self.ack(Kind.PUBREC, packet_id, reason)

    def pubrel(self, packet_id: int, reason: int | None = None) -> bytes:
        """PUBREL."""
        return self.ack(Kind.PUBREL, packet_id, reason)

    def pubcomp(self, packet_id: int, reason: int | None = None) -> bytes:
        """PUBCOMP."""
        return self.ack(Kind.PUBCOMP, packet_id, reason)

    def subscribe(
        self,
        *filters: tuple[str | bytes, int],
        packet_id: int = 1,
        properties: Properties = (),
        flags: int = 2,
    ) -> bytes:
        """SUBSCRIBE; each filter comes with its options byte (the QoS in 3.1.1)."""
        body = u16(packet_id) + self._props(properties)
        for topic_filter, options in filters:
            body += text(topic_filter) + bytes([options])
        return packet(0x80 | flags, body)

    def unsubscribe(
        self,
        *filters: str | bytes,
        packet_id: int = 1,
        properties: Properties = (),
        flags: int = 2,
    ) -> bytes:
        """UNSUBSCRIBE."""
        body = u16(packet_id) + self._props(properties) + b"".join(text(f) for f in filters)
        return packet(0xA0 | flags, body)

    def pingreq(self) -> bytes:
        """PINGREQ."""
        return b"\xc0\x00"

    def disconnect(
        self, reason: int | None = None, properties: Properties | None = None, *, first: int = 0xE0
    ) -> bytes:
        """DISCONNECT; the two-byte form unless a reason is given."""
        body = b"" if reason is None else bytes([reason])
        if properties is not None:
            body += props(properties)
        return packet(first, body)

    def auth(
        self,
        reason: int | None = None,
        properties: Properties | None = None,
        *,
        first: int = 0xF0,
    ) -> bytes:
        """AUTH (MQTT 5.0)."""
        body = b"" if reason is None else bytes([reason])
        if properties is not None:
            body += props(properties)
        return packet(first, body)


V3 = Packets(4)
V5 = Packets(5)
