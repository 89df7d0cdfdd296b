"""MQTT packets for test peers: enough of 3.1.1 and 5.0 to publish, subscribe and acknowledge.

Written apart from ``perdure.mqtt`` on purpose: a codec that is wrong in the same way on both
sides would agree with itself. It trusts the broker's lengths and checks what a peer relies on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.mqtt.errors import MalformedPacket

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
DISCONNECT: Final = 14

_SESSION_EXPIRY: Final = 0x11
_WILL_DELAY = 0x18
_RECEIVE_MAXIMUM: Final = 0x21
_USER: Final = 0x26
_LENGTH_BYTES_MAX: Final = 4


class Packet(msgspec.Struct, frozen=True):
    """One packet: type, the four flag bits, and what follows the fixed header."""

    kind: int
    flags: int
    body: bytes


class Publication(msgspec.Struct, frozen=True):
    """A PUBLISH, taken apart. Properties of 5.0 are passed over."""

    topic: str
    payload: bytes
    qos: int
    dup: bool
    retain: bool
    packet_id: int


@final
class Splitter:
    """Cuts a byte stream into packets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that these bytes complete."""
        self._buffer += data
        found: list[Packet] = []
        position = 0
        while (packet := self._packet_at(position)) is not None:
            found.append(packet[0])
            position = packet[1]
        del self._buffer[:position]
        return found

    def _packet_at(self, start: int) -> tuple[Packet, int] | None:
        buffer = self._buffer
        if len(buffer) < start + 2:
            return None
        length, position = read_varint(buffer, start + 1)
        if position < 0 or len(buffer) < position + length:
            return None
        body = bytes(buffer[position : position + length])
        return Packet(buffer[start] >> 4, buffer[start] & 15, body), position + length


def read_varint(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """A variable byte integer and the position after it; position -1 if it is not all there.

    Raises:
        MalformedPacket: it has more than four bytes.
    """
    value = 0
    for place in range(_LENGTH_BYTES_MAX):
        if start + place >= len(data):
            return 0, -1
        byte = data[start + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, start + place + 1
    raise MalformedPacket("a length of more than four bytes")


def varint(value: int) -> bytes:
    """A variable byte integer."""
    found = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        found.append(low | 0x80 if value else low)
        if not value:
            return bytes(found)


def connect(
    client_id: str,
    *,
    protocol: int,
    clean: bool = False,
    keep_alive_s: int = 60,
    expiry_s: int = 0xFFFF_FFFF,
    receive_maximum: int = 0,
    will: tuple[str, bytes, int] | None = None,
    will_delay_s: int = 0,
) -> bytes:
    """CONNECT; expiry, receive maximum (0 = not said) and will delay go out in 5.0 only.

    ``will`` is topic, payload and QoS.
    """
    flags = (2 if clean else 0) | (4 | will[2] << 3 if will is not None else 0)
    body = _string("MQTT") + bytes([protocol, flags]) + keep_alive_s.to_bytes(2, "big")
    if protocol >= 5:
        properties = bytes([_SESSION_EXPIRY]) + expiry_s.to_bytes(4, "big")
        if receive_maximum:
            properties += bytes([_RECEIVE_MAXIMUM]) + receive_maximum.to_bytes(2, "big")
        body += varint(len(properties)) + properties
    body += _string(client_id)
    if will is not None:
        topic, payload, _ = will
        if protocol >= 5:
            delay = bytes([_WILL_DELAY]) + will_delay_s.to_bytes(4, "big") if will_delay_s else b""
            body += varint(len(delay)) + delay
        body += _string(topic) + len(payload).to_bytes(2, "big") + payload
    return _packet(CONNECT, 0, body)


def subscribe(
    packet_id: int,
    filters: Sequence[tuple[str, int]],
    *,
    protocol: int,
    user: Sequence[tuple[str, str]] = (),
) -> bytes:
    """SUBSCRIBE to filters, each with its maximum QoS; user properties go out in 5.0 only."""
    body = packet_id.to_bytes(2, "big") + _user_properties(user, protocol)
    for name, qos in filters:
        body += _string(name) + bytes([qos])
    return _packet(SUBSCRIBE, 2, body)


def publish(
    topic: str,
    payload: bytes,
    *,
    qos: int,
    packet_id: int,
    dup: bool,
    protocol: int,
    retain: bool = False,
    user: Sequence[tuple[str, str]] = (),
) -> bytes:
    """PUBLISH at QoS 1 or 2; user properties go out in 5.0 only."""
    body = _string(topic) + packet_id.to_bytes(2, "big") + _user_properties(user, protocol)
    return _packet(PUBLISH, (8 if dup else 0) | qos << 1 | int(retain), body + payload)


def acknowledgement(kind: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP with success."""
    return _packet(kind, 2 if kind == PUBREL else 0, packet_id.to_bytes(2, "big"))


def disconnect() -> bytes:
    """DISCONNECT, normal; in both versions."""
    return _packet(DISCONNECT, 0, b"")


def read_publish(packet: Packet, *, protocol: int) -> Publication:
    """Take a PUBLISH apart."""
    body, qos = packet.body, packet.flags >> 1 & 3
    length = int.from_bytes(body[:2], "big")
    topic, position = body[2 : 2 + length].decode(), 2 + length
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(body[position : position + 2], "big")
        position += 2
    if protocol >= 5:
        size, position = read_varint(body, position)
        position += size
    return Publication(
        topic=topic,
        payload=body[position:],
        qos=qos,
        dup=bool(packet.flags & 8),
        retain=bool(packet.flags & 1),
        packet_id=packet_id,
    )


def read_acknowledgement(packet: Packet) -> tuple[int, int]:
    """Packet identifier and reason code (0 where none is said) of PUBACK to PUBCOMP."""
    return int.from_bytes(packet.body[:2], "big"), packet.body[2] if len(packet.body) > 2 else 0


def read_connack(packet: Packet) -> tuple[bool, int]:
    """Session present, and the return or reason code."""
    return bool(packet.body[0] & 1), packet.body[1]


def read_suback(packet: Packet, *, protocol: int) -> list[int]:
    """The granted QoS levels or failures, in order."""
    position = 2
    if protocol >= 5:
        size, position = read_varint(packet.body, position)
        position += size
    return list(packet.body[position:])


def _user_properties(user: Sequence[tuple[str, str]], protocol: int) -> bytes:
    """A packet's properties, of which these are all."""
    if protocol < 5:
        return b""
    pairs = b"".join(bytes([_USER]) + _string(name) + _string(value) for name, value in user)
    return varint(len(pairs)) + pairs


def _packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


def _string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data
