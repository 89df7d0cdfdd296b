"""Reads the packets of a server strictly, without any code of the broker.

A packet that breaks the wire format raises ``BadPacket``, so that each case also checks every
packet that it receives. Nothing here may import ``perdure``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from tests.wire.packets import (
    BINARY_PROPERTIES,
    BYTE_PROPERTIES,
    FOUR_PROPERTIES,
    STRING_PROPERTIES,
    TWO_PROPERTIES,
    VARINT_PROPERTIES,
    Kind,
    Prop,
    Value,
)

_ACK_PROPERTIES = frozenset({0x1F, 0x26})
_FROM_SERVER: dict[int, frozenset[int]] = {
    Kind.CONNACK: frozenset(
        {0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22}
        | {0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A}
    ),
    Kind.PUBLISH: frozenset({0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26}),
    Kind.PUBACK: _ACK_PROPERTIES,
    Kind.PUBREC: _ACK_PROPERTIES,
    Kind.PUBREL: _ACK_PROPERTIES,
    Kind.PUBCOMP: _ACK_PROPERTIES,
    Kind.SUBACK: _ACK_PROPERTIES,
    Kind.UNSUBACK: _ACK_PROPERTIES,
    Kind.DISCONNECT: frozenset({0x1C, 0x1F, 0x26}),  # [MQTT-3.14.2-2]: no 0x11 from a server
    Kind.AUTH: frozenset({0x15, 0x16, 0x1F, 0x26}),
}


class BadPacket(AssertionError):
    """The broker sent bytes that are not a legal packet from a server."""


@final
@dataclass(kw_only=True)
class Packet:
    """A packet from the broker, taken apart."""

    kind: Kind
    flags: int
    raw: bytes
    packet_id: int = 0
    reason: int = 0
    """CONNACK return or reason code; that of an acknowledgement, DISCONNECT or AUTH."""
    reasons: tuple[int, ...] = ()
    """The codes of a SUBACK or UNSUBACK, in order."""
    session_present: bool = False
    topic: str = ""
    payload: bytes = b""
    properties: list[tuple[int, Value]] = field(default_factory=list)

    @property
    def dup(self) -> bool:
        """The DUP flag of a PUBLISH."""
        return bool(self.flags & 8)

    @property
    def qos(self) -> int:
        """The QoS of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        """The RETAIN flag of a PUBLISH."""
        return bool(self.flags & 1)

    def get(self, identifier: int) -> Value | None:
        """The first value of a property, or None."""
        return next((value for key, value in self.properties if key == identifier), None)

    def all(self, identifier: int) -> list[Value]:
        """All values of a property, in order."""
        return [value for key, value in self.properties if key == identifier]


@final
class _Reader:
    """Takes primitives off the front of a packet's body."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.body) - self.at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise BadPacket(f"{count} bytes wanted, {self.left} left in {self.body.hex(' ')}")
        self.at += count
        return self.body[self.at - count : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def string(self) -> str:
        value = self.binary().decode("utf-8")  # strict: surrogates raise
        if "\0" in value:
            raise BadPacket("U+0000 in a string")  # [MQTT-1.5.4-2]
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise BadPacket("over-long variable byte integer")  # [MQTT-1.5.5-1]
                return value
            shift += 7
            if shift > 21:
                raise BadPacket("variable byte integer of more than four bytes")

    def properties(self, kind: int) -> list[tuple[int, Value]]:
        inner = _Reader(self.take(self.varint()))
        found: list[tuple[int, Value]] = []
        while inner.left:
            identifier = inner.varint()
            if identifier not in _FROM_SERVER[kind]:
                raise BadPacket(f"property {identifier:#04x} in {Kind(kind).name} from a server")
            repeatable = identifier in (Prop.USER, Prop.SUBSCRIPTION_ID)
            if not repeatable and any(key == identifier for key, _ in found):
                raise BadPacket(f"property {identifier:#04x} twice")
            found.append((identifier, inner.value(identifier)))
        return found

    def value(self, identifier: int) -> Value:
        if identifier in BYTE_PROPERTIES:
            return self.number(1)
        if identifier in TWO_PROPERTIES:
            return self.number(2)
        if identifier in FOUR_PROPERTIES:
            return self.number(4)
        if identifier in VARINT_PROPERTIES:
            return self.varint()
        if identifier in STRING_PROPERTIES:
            return self.string()
        if identifier in BINARY_PROPERTIES:
            return self.binary()
        return self.string(), self.string()


def read(raw: bytes, *, version: int) -> Packet:
    """Takes one whole packet from a server apart.

    Raises:
        BadPacket: the bytes break the wire format.
    """
    try:
        kind = Kind(raw[0] >> 4)
    except ValueError:
        raise BadPacket(f"packet type 0: {raw.hex(' ')}") from None
    outer = _Reader(raw[1:])
    reader = _Reader(outer.take(outer.varint()))
    found = Packet(kind=kind, flags=raw[0] & 15, raw=raw)
    five = version >= 5
    if kind is not Kind.PUBLISH and found.flags != (2 if kind is Kind.PUBREL else 0):
        raise BadPacket(f"flags {found.flags:#x} in {kind.name}")  # [MQTT-2.1.3-1]
    if kind is Kind.PUBLISH:
        _read_publish(found, reader, five=five)
    elif kind is Kind.CONNACK:
        acknowledge = reader.number(1)
        if acknowledge > 1:
            raise BadPacket("reserved CONNACK flags")  # [MQTT-3.2.2-1]
        found.session_present = acknowledge == 1
        found.reason = reader.number(1)
        found.properties = reader.properties(kind) if five else []
    elif kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP):
        found.packet_id = reader.number(2)
        _read_reason(found, reader, five=five)
    elif kind is Kind.SUBACK or kind is Kind.UNSUBACK:
        found.packet_id = reader.number(2)
        found.properties = reader.properties(kind) if five else []
        if five or kind is Kind.SUBACK:
            found.reasons = tuple(reader.take(reader.left))
    elif kind is Kind.DISCONNECT or kind is Kind.AUTH:
        if not five:
            raise BadPacket(f"{kind.name} from a 3.1.1 server")
        _read_reason(found, reader, five=True)
    elif kind is not Kind.PINGRESP:
        raise BadPacket(f"{kind.name} from a server")
    if reader.left:
        raise BadPacket(f"{reader.left} bytes too many: {raw.hex(' ')}")
    return found


def _read_reason(found: Packet, reader: _Reader, *, five: bool) -> None:
    """A reason code and properties, both of which 5.0 lets a sender leave out."""
    if five and reader.left:
        found.reason = reader.number(1)
        if reader.left:
            found.properties = reader.properties(found.kind)


def _read_publish(found: Packet, reader: _Reader, *, five: bool) -> None:
    if found.qos == 3 or (found.dup and not found.qos):
        raise BadPacket(f"PUBLISH flags {found.flags:#x}")  # [MQTT-3.3.1-2], [MQTT-3.3.1-4]
    found.topic = reader.string()
    if "+" in found.topic or "#" in found.topic:
        raise BadPacket(f"wildcard in topic name {found.topic!r}")  # [MQTT-3.3.2-2]
    if found.qos:
        found.packet_id = reader.number(2)
        if not found.packet_id:
            raise BadPacket("packet identifier 0")  # [MQTT-2.2.1-4]
    found.properties = reader.properties(Kind.PUBLISH) if five else []
    found.payload = reader.take(reader.left)
