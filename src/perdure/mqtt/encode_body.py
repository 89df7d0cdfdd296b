"""What packets other than PUBLISH and the acknowledgements hold, in wire form: not the hot path."""

from __future__ import annotations

from perdure.errors import UsageError
from perdure.model import Will
from perdure.mqtt.packets import (
    CONNECT,
    SUBSCRIBE,
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Suback,
    Subscribe,
    Unsuback,
)
from perdure.mqtt.primitives import binary, text, uint16, varint
from perdure.mqtt.properties import WILL, write_properties

# Packets from which 3.1.2.11.4 and the like let a sender drop what only explains.
EXPLAINED = Connack | Ack | Suback | Unsuback | Disconnect | Auth


def connect_body(packet: Connect) -> bytes:
    """The variable header and payload of CONNECT."""
    version = packet.protocol
    flags = packet.clean_start << 1
    fields = [text(packet.client_id)]
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        fields += _will(will, version)
    if packet.username is not None:
        flags |= 0x80
        fields.append(text(packet.username))
    if packet.password is not None:
        flags |= 0x40
        if version != V5 and packet.username is None:
            raise UsageError("MQTT 3.1.1 has no password without a user name")
        fields.append(binary(packet.password))
    head = b"\x00\x04MQTT" + bytes((version, flags)) + uint16(packet.keep_alive)
    return head + properties_of(packet.properties, CONNECT, version) + b"".join(fields)


def _will(will: Will, version: int) -> list[bytes]:
    fields = [text(will.topic), binary(will.payload)]
    if version == V5:
        own = Properties(
            message_expiry_interval=will.expiry_s, will_delay_interval=will.delay_s or None
        )
        raw = write_properties(own, WILL) + will.properties
        fields.insert(0, varint(len(raw)) + raw)
    return fields


def subscribe(packet: Subscribe, version: int) -> bytes:
    """SUBSCRIBE, whole."""
    fields = [
        packet_id_bytes(packet.packet_id),
        properties_of(packet.properties, SUBSCRIBE, version),
    ]
    for wanted in packet.filters:
        options = wanted.qos
        if version == V5:
            options |= wanted.no_local << 2 | wanted.retain_as_published << 3
            options |= wanted.retain_handling << 4
        fields += (text(wanted.filter), bytes((options,)))
    return framed(SUBSCRIBE << 4 | 2, *fields)


def reasoned(reason: int, properties: Properties, kind: int) -> bytes:
    """Reason code and properties, each left out where it may be (3.4.2.1, 3.14.2.1, 3.15.2.1)."""
    raw = write_properties(properties, kind)
    if raw:
        return bytes((reason,)) + varint(len(raw)) + raw
    return bytes((reason,)) if reason else b""


def properties_of(properties: Properties, kind: int, version: int) -> bytes:
    """Properties with their length; nothing in 3.1.1."""
    if version != V5:
        return b""
    raw = write_properties(properties, kind)
    return varint(len(raw)) + raw


def packet_id_bytes(packet_id: int) -> bytes:
    """A packet identifier; 0 is none."""
    if not packet_id:
        raise UsageError("a packet identifier is 1 to 65535")
    return uint16(packet_id)


def framed(first: int, *fields: bytes) -> bytes:
    """A packet: first byte, length, fields."""
    body = b"".join(fields)
    return bytes((first,)) + varint(len(body)) + body


def explained_with(packet: EXPLAINED, properties: Properties) -> Packet:
    """The packet with other properties."""
    if isinstance(packet, Connack):
        return Connack(packet.session_present, packet.reason, properties)
    if isinstance(packet, Ack):
        return Ack(packet.kind, packet.packet_id, packet.reason, properties)
    if isinstance(packet, Suback):
        return Suback(packet.packet_id, packet.reasons, properties)
    if isinstance(packet, Unsuback):
        return Unsuback(packet.packet_id, packet.reasons, properties)
    if isinstance(packet, Disconnect):
        return Disconnect(packet.reason, properties)
    return Auth(packet.reason, properties)
