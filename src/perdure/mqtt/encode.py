"""Packets to bytes, both versions, both directions.

``append_publish`` and ``ack_bytes`` are the hot path: a fan-out encodes the head of a message
once and never copies its payload. What cannot be encoded raises ``UsageError``: it is our own
mistake, never the peer's. Invariant: ``decode`` reads back what ``encode`` writes.
"""

from __future__ import annotations

from typing import Final, assert_never, final

from mypy_extensions import mypyc_attr

from perdure.errors import UsageError
from perdure.model import Message
from perdure.mqtt.encode_body import (
    EXPLAINED,
    connect_body,
    explained_with,
    framed,
    packet_id_bytes,
    properties_of,
    reasoned,
    subscribe,
)
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
from perdure.mqtt.primitives import BYTES, UINT16_BYTES, text, uint16, uint32, varint, varint_size
from perdure.mqtt.properties import read_properties, write_properties
from perdure.mqtt.puback_run import PubackRun

PINGREQ_BYTES: Final = b"\xc0\x00"
PINGRESP_BYTES: Final = b"\xd0\x00"

_ACK_FIRST: Final = {PUBACK: b"\x40", PUBREC: b"\x50", PUBREL: b"\x62", PUBCOMP: b"\x70"}
ACK_SHORT: Final[list[bytes]] = [
    _ACK_FIRST[kind] + b"\x02" if kind in _ACK_FIRST else b"" for kind in range(PUBCOMP + 1)
]
"""By kind, what comes before the packet identifier of an acknowledgement that says no more."""
ACK_SHORT_BYTES: Final = 4
"""Size of such an acknowledgement."""
_ACK_REASON: Final = {kind: first + b"\x03" for kind, first in _ACK_FIRST.items()}

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
class _Identifiers:
    """Several subscription identifiers, encoded."""

    __slots__ = ("data", "identifiers")

    def __init__(self, identifiers: tuple[int, ...], data: bytes) -> None:
        self.identifiers: tuple[int, ...] = identifiers
        self.data: bytes = data


@final
class _Last:
    """What was encoded last: a fan-out, and most streams, need the same again.

    What is new takes its place whole, whatever thread encodes.
    """

    __slots__ = ("head", "identifiers")

    def __init__(self) -> None:
        self.head: _Head = _Head("", 0, 0, b"")
        self.identifiers: _Identifiers = _Identifiers((), b"")


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
        return framed(CONNECT << 4, connect_body(packet))
    if isinstance(packet, Connack):
        head = bytes((packet.session_present, packet.reason))
        return framed(CONNACK << 4, head, properties_of(packet.properties, CONNACK, version))
    if isinstance(packet, Subscribe):
        return subscribe(packet, version)
    if isinstance(packet, Unsubscribe):
        filters = b"".join([text(topic_filter) for topic_filter in packet.filters])
        properties = properties_of(packet.properties, UNSUBSCRIBE, version)
        return framed(UNSUBSCRIBE << 4 | 2, packet_id_bytes(packet.packet_id), properties, filters)
    if isinstance(packet, Suback):
        properties = properties_of(packet.properties, SUBACK, version)
        reasons = bytes(packet.reasons)
        return framed(SUBACK << 4, packet_id_bytes(packet.packet_id), properties, reasons)
    if isinstance(packet, Unsuback):
        properties = properties_of(packet.properties, UNSUBACK, version)
        reasons = bytes(packet.reasons) if version == V5 else b""
        return framed(UNSUBACK << 4, packet_id_bytes(packet.packet_id), properties, reasons)
    if isinstance(packet, Disconnect):
        if version != V5:
            return b"\xe0\x00"
        return framed(DISCONNECT << 4, reasoned(packet.reason, packet.properties, DISCONNECT))
    if isinstance(packet, PubackRun):
        return packet.raw
    if isinstance(packet, Auth):
        if version != V5:
            raise UsageError("MQTT 3.1.1 has no AUTH")
        return framed(AUTH << 4, reasoned(packet.reason, packet.properties, AUTH))
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
    if version != V5 or not isinstance(packet, EXPLAINED) or packet.properties is None:
        return None
    properties = packet.properties.copy()
    properties.user_properties = ()
    raw = encode(explained_with(packet, properties), version)
    if len(raw) > size_max:
        properties.reason_string = None
        raw = encode(explained_with(packet, properties), version)
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
    if len(identifiers) == 1:
        own += b"\x0b" + varint(identifiers[0])
    elif identifiers:
        own += _many_identifiers(identifiers)
    return own


def _many_identifiers(identifiers: tuple[int, ...]) -> bytes:
    """Subscription identifiers in wire form: ten thousand subscriptions may match one topic."""
    last = _LAST.identifiers
    if last.identifiers is not identifiers:
        data = b"".join([b"\x0b" + varint(identifier) for identifier in identifiers])
        last = _LAST.identifiers = _Identifiers(identifiers, data)
    return last.data


def _utf8_size(topic: str) -> int:
    return len(topic) if topic.isascii() else len(topic.encode())


def _publish(packet: Publish, version: int) -> bytes:
    if packet.qos == 0 and (packet.packet_id or packet.dup):
        raise UsageError("a PUBLISH with QoS 0 has neither a packet identifier nor DUP")
    if version != V5 and not packet.topic:
        raise UsageError("a PUBLISH of 3.1.1 needs a topic name")
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    identifier = packet_id_bytes(packet.packet_id) if packet.qos else b""
    properties = b""
    if version == V5:
        own = _own_properties(packet.expiry_s, packet.identifiers, packet.topic_alias)
        properties = varint(len(own) + len(packet.forward)) + own + packet.forward
    topic = text(packet.topic)
    return framed(PUBLISH << 4 | flags, topic, identifier, properties, packet.payload)


def _ack(packet: Ack, version: int) -> bytes:
    identifier = packet_id_bytes(packet.packet_id)
    if version != V5 or (packet.reason == 0 and packet.properties is None):
        return ACK_SHORT[packet.kind] + identifier
    properties = EMPTY if packet.properties is None else packet.properties
    first = _ACK_FIRST[packet.kind][0]
    return framed(first, identifier, reasoned(packet.reason, properties, packet.kind))
