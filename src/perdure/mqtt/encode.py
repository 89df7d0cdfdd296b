"""Packets to bytes, both versions, both directions.

``append_publish`` and ``ack_bytes`` are the hot path: a fan-out encodes the head of a message
once and never copies its payload. What cannot be encoded raises ``UsageError``: it is our own
mistake, never the peer's. Invariant: ``decode`` reads back what ``encode`` writes.
"""

from __future__ import annotations

from typing import Final, assert_never, final

from mypy_extensions import mypyc_attr

from perdure.errors import UsageError
from perdure.model import Message, Will
from perdure.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    EMPTY,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from perdure.mqtt.primitives import (
    BYTES,
    UINT16_BYTES,
    binary,
    text,
    uint16,
    uint32,
    varint,
    varint_size,
)
from perdure.mqtt.properties import WILL, read_properties, write_properties

PINGREQ_BYTES: Final = b"\xc0\x00"
PINGRESP_BYTES: Final = b"\xd0\x00"

_ACK_FIRST: Final = {
    PUBACK: b"\x40",
    PUBREC: b"\x50",
    PUBREL: b"\x62",
    PUBCOMP: b"\x70",
}
ACK_SHORT: Final[list[bytes]] = [
    _ACK_FIRST[kind] + b"\x02" if kind in _ACK_FIRST else b"" for kind in range(PUBCOMP + 1)
]
"""By kind, what comes before the packet identifier of an acknowledgement that says no more."""
ACK_SHORT_BYTES: Final = 4
"""Size of such an acknowledgement."""
_ACK_REASON: Final = {kind: first + b"\x03" for kind, first in _ACK_FIRST.items()}

# Packets from which 3.1.2.11.4 and the like let a sender drop what only explains.
_EXPLAINED = Connack | Ack | Suback | Unsuback | Disconnect | Auth


TOPICS_CACHED_MAX: Final = 16_384
"""Topic names kept encoded, for all connections."""
TOPIC_CACHED_BYTES_MAX: Final = 256
"""Longer topic names are not kept."""

_topics: Final[dict[str, bytes]] = {}


@final
@mypyc_attr(acyclic=True)
class _Head:
    """What comes before the packet identifier of a PUBLISH: first byte, length and topic name.

    Attributes:
        topic: topic name; empty if the peer knows its alias.
        first: first byte.
        rest: bytes of the packet behind the topic name.
        data: the head in wire form.
    """

    __slots__ = ("data", "first", "rest", "topic")

    def __init__(self, topic: str, first: int, rest: int, data: bytes) -> None:
        self.topic: str = topic
        self.first: int = first
        self.rest: int = rest
        self.data: bytes = data


@final
class _Last:
    """The head that was encoded last: a fan-out, and most streams, need the same again.

    A new head takes its place whole, whatever thread encodes.
    """

    __slots__ = ("head",)

    def __init__(self) -> None:
        self.head: _Head = _Head("", 0, 0, b"")


_LAST: Final = _Last()


def encode(packet: Packet, version: int) -> bytes:
    """One packet in wire form.

    Args:
        packet: any packet, of either direction.
        version: 4 or 5. Properties and reason codes do not exist in 4 and are left out; what
            4 cannot say at all (AUTH) is a ``UsageError``.
    """
    if isinstance(packet, Publish):
        return _publish(packet, version)
    if isinstance(packet, Ack):
        return _ack(packet, version)
    if isinstance(packet, Pingreq):
        return PINGREQ_BYTES
    if isinstance(packet, Pingresp):
        return PINGRESP_BYTES
    if isinstance(packet, Connect):
        return _framed(CONNECT << 4, _connect(packet))
    if isinstance(packet, Connack):
        head = bytes((packet.session_present, packet.reason))
        return _framed(CONNACK << 4, head, _properties(packet.properties, CONNACK, version))
    if isinstance(packet, Subscribe):
        return _subscribe(packet, version)
    if isinstance(packet, Unsubscribe):
        filters = b"".join([text(topic_filter) for topic_filter in packet.filters])
        properties = _properties(packet.properties, UNSUBSCRIBE, version)
        return _framed(UNSUBSCRIBE << 4 | 2, _packet_id(packet.packet_id), properties, filters)
    if isinstance(packet, Suback):
        properties = _properties(packet.properties, SUBACK, version)
        reasons = bytes(packet.reasons)
        return _framed(SUBACK << 4, _packet_id(packet.packet_id), properties, reasons)
    if isinstance(packet, Unsuback):
        properties = _properties(packet.properties, UNSUBACK, version)
        reasons = bytes(packet.reasons) if version == V5 else b""
        return _framed(UNSUBACK << 4, _packet_id(packet.packet_id), properties, reasons)
    if isinstance(packet, Disconnect):
        if version != V5:
            return b"\xe0\x00"
        return _framed(DISCONNECT << 4, _reasoned(packet.reason, packet.properties, DISCONNECT))
    if isinstance(packet, Auth):
        if version != V5:
            raise UsageError("MQTT 3.1.1 has no AUTH")
        return _framed(AUTH << 4, _reasoned(packet.reason, packet.properties, AUTH))
    assert_never(packet)


def encode_within(packet: Packet, version: int, size_max: int) -> bytes | None:
    """One packet in wire form, within the peer's Maximum Packet Size.

    User properties, then the reason string, are left out where that makes it fit
    ([MQTT-3.2.2-19], [MQTT-3.2.2-20] and the like for the other packets).

    Returns:
        None if it does not fit even so, or if nothing may be left out of this packet.
    """
    raw = encode(packet, version)
    if len(raw) <= size_max:
        return raw
    if version != V5 or not isinstance(packet, _EXPLAINED) or packet.properties is None:
        return None
    properties = packet.properties.copy()
    properties.user_properties = ()
    raw = encode(_explained_with(packet, properties), version)
    if len(raw) > size_max:
        properties.reason_string = None
        raw = encode(_explained_with(packet, properties), version)
    return raw if len(raw) <= size_max else None


def ack_bytes(kind: int, packet_id: int, reason: int = 0, version: int = 4) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP without properties."""
    if reason == 0 or version != V5:
        return ACK_SHORT[kind] + UINT16_BYTES[packet_id]
    return _ACK_REASON[kind] + UINT16_BYTES[packet_id] + BYTES[reason]


def append_publish(
    out: list[bytes],
    message: Message,
    version: int,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    expiry_s: int = -1,
    identifiers: tuple[int, ...] = (),
    topic_alias: int = 0,
    omit_topic: bool = False,
) -> int:
    """Append the pieces of one PUBLISH to ``out``; the payload is not copied.

    The caller has checked the size (``publish_size``) where the peer limits it.

    Args:
        out: the pieces, to be joined by whoever writes them.
        message: what is published.
        version: 4 or 5; in 4 all that follows ``packet_id`` is ignored.
        qos: the QoS to deliver with.
        retain: the RETAIN flag to deliver with.
        dup: the DUP flag.
        packet_id: ignored with QoS 0.
        expiry_s: seconds until the message expires; -1 = never.
        identifiers: subscription identifiers.
        topic_alias: 0 = none.
        omit_topic: the peer knows the alias already.

    Returns:
        The size of the packet, bytes.
    """
    payload = message.payload
    topic = message.topic
    rest = len(payload)
    if qos:
        rest += 2
    prefix = properties = b""
    if version == V5:
        properties = message.properties
        own = b""
        if expiry_s >= 0 or topic_alias or identifiers:
            own = _own_properties(expiry_s, identifiers, topic_alias)
        length = len(own) + len(properties)
        prefix = BYTES[length] if length < 0x80 else varint(length)
        rest += len(prefix) + length
        if own:
            prefix += own
        if omit_topic:
            topic = ""
    first = 0x30 | dup << 3 | qos << 1 | retain
    head = _LAST.head
    if head.topic is not topic or head.first != first or head.rest != rest:
        head = _new_head(topic, first, rest)
    out.append(head.data)
    if qos:
        out.append(UINT16_BYTES[packet_id])
    if prefix:
        out.append(prefix)
    if properties:
        out.append(properties)
    if payload:
        out.append(payload)
    return len(head.data) + rest


def publish_size(
    message: Message,
    version: int,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    expiry_s: int = -1,
    identifiers: tuple[int, ...] = (),
    topic_alias: int = 0,
    omit_topic: bool = False,
) -> int:
    """The size that ``append_publish`` with the same arguments would return."""
    size = 2 + (0 if omit_topic and version == V5 else _utf8_size(message.topic))
    size += len(message.payload)
    if qos:
        size += 2
    if version == V5:
        own = len(message.properties)
        if expiry_s >= 0:
            own += 5
        if topic_alias:
            own += 3
        for identifier in identifiers:
            own += 1 + varint_size(identifier)
        size += varint_size(own) + own
    return 1 + varint_size(size) + size


def forward_properties(properties: Properties) -> bytes:
    """The properties that a server forwards unaltered, in wire form without a length.

    What belongs to one hop alone (expiry, alias, identifiers, will delay) is left out.
    """
    kept = Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )
    return write_properties(kept, PUBLISH)


def properties_from_forward(raw: bytes) -> Properties:
    """The inverse of ``forward_properties``.

    Raises:
        MqttError: the bytes are not properties of a message.
    """
    return read_properties(varint(len(raw)) + raw, 0, len(raw) + varint_size(len(raw)), PUBLISH)[0]


def _new_head(topic: str, first: int, rest: int) -> _Head:
    """Encode a head, and keep it."""
    encoded = _topics.get(topic)
    if encoded is None:
        encoded = _topic(topic)
    size = len(encoded) + rest
    if size < 0x80:
        data = UINT16_BYTES[first << 8 | size] + encoded
    else:
        data = BYTES[first] + varint(size) + encoded
    head = _Head(topic, first, rest, data)
    _LAST.head = head
    return head


def _topic(topic: str) -> bytes:
    """A topic name in wire form that the cache does not hold."""
    encoded = text(topic)
    if len(encoded) <= TOPIC_CACHED_BYTES_MAX:
        if len(_topics) >= TOPICS_CACHED_MAX:
            _topics.clear()
        _topics[topic] = encoded
    return encoded


def _own_properties(expiry_s: int, identifiers: tuple[int, ...], topic_alias: int) -> bytes:
    """The properties of this hop, in wire form without a length."""
    own = b""
    if expiry_s >= 0:
        own = b"\x02" + uint32(expiry_s)
    if topic_alias:
        own += b"\x23" + uint16(topic_alias)
    for identifier in identifiers:
        own += b"\x0b" + varint(identifier)
    return own


def _utf8_size(topic: str) -> int:
    return len(topic) if topic.isascii() else len(topic.encode())


def _publish(packet: Publish, version: int) -> bytes:
    if packet.qos == 0 and (packet.packet_id or packet.dup):
        raise UsageError("a PUBLISH with QoS 0 has neither a packet identifier nor DUP")
    if version != V5 and not packet.topic:
        raise UsageError("a PUBLISH of 3.1.1 needs a topic name")
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    identifier = _packet_id(packet.packet_id) if packet.qos else b""
    properties = b""
    if version == V5:
        own = _own_properties(packet.expiry_s, packet.identifiers, packet.topic_alias)
        properties = varint(len(own) + len(packet.forward)) + own + packet.forward
    topic = text(packet.topic)
    return _framed(PUBLISH << 4 | flags, topic, identifier, properties, packet.payload)


def _ack(packet: Ack, version: int) -> bytes:
    identifier = _packet_id(packet.packet_id)
    if version != V5 or (packet.reason == 0 and packet.properties is None):
        return ACK_SHORT[packet.kind] + identifier
    properties = EMPTY if packet.properties is None else packet.properties
    first = _ACK_FIRST[packet.kind][0]
    return _framed(first, identifier, _reasoned(packet.reason, properties, packet.kind))


def _connect(packet: Connect) -> bytes:
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
    return head + _properties(packet.properties, CONNECT, version) + b"".join(fields)


def _will(will: Will, version: int) -> list[bytes]:
    fields = [text(will.topic), binary(will.payload)]
    if version == V5:
        own = Properties(
            message_expiry_interval=will.expiry_s, will_delay_interval=will.delay_s or None
        )
        raw = write_properties(own, WILL) + will.properties
        fields.insert(0, varint(len(raw)) + raw)
    return fields


def _subscribe(packet: Subscribe, version: int) -> bytes:
    fields = [_packet_id(packet.packet_id), _properties(packet.properties, SUBSCRIBE, version)]
    for wanted in packet.filters:
        options = wanted.qos
        if version == V5:
            options |= wanted.no_local << 2 | wanted.retain_as_published << 3
            options |= wanted.retain_handling << 4
        fields += (text(wanted.filter), bytes((options,)))
    return _framed(SUBSCRIBE << 4 | 2, *fields)


def _reasoned(reason: int, properties: Properties, kind: int) -> bytes:
    """Reason code and properties, each left out where it may be (3.4.2.1, 3.14.2.1, 3.15.2.1)."""
    raw = write_properties(properties, kind)
    if raw:
        return bytes((reason,)) + varint(len(raw)) + raw
    return bytes((reason,)) if reason else b""


def _properties(properties: Properties, kind: int, version: int) -> bytes:
    if version != V5:
        return b""
    raw = write_properties(properties, kind)
    return varint(len(raw)) + raw


def _packet_id(packet_id: int) -> bytes:
    if not packet_id:
        raise UsageError("a packet identifier is 1 to 65535")
    return uint16(packet_id)


def _framed(first: int, *fields: bytes) -> bytes:
    body = b"".join(fields)
    return bytes((first,)) + varint(len(body)) + body


def _explained_with(packet: _EXPLAINED, properties: Properties) -> Packet:
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
