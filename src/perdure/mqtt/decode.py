"""Bytes to packets: framing, the checks of the fixed header, and the hot path of PUBLISH and acks.

The decoder of one direction of one connection. It does not know sockets, sessions or topics
beyond their form. Invariant: whatever the bytes and however they are cut, they either become
packets or set ``failure``; nothing is raised, and the result does not depend on the cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from perdure.errors import MalformedPacket, MqttError, ProtocolViolation
from perdure.mqtt import decode_body
from perdure.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    KIND_NAMES,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    V5,
    V311,
    Ack,
    Packet,
    Publish,
)
from perdure.mqtt.primitives import name_of
from perdure.mqtt.properties import (
    MessageProperties,
    check_topic_name,
    read_length,
    read_message_properties,
)
from perdure.mqtt.reason_codes import PACKET_TOO_LARGE, UNSUPPORTED_PROTOCOL_VERSION

if TYPE_CHECKING:
    # A machine word in the compiled build; an int is asked at each step whether it is one.
    from mypy_extensions import i64

TOPICS_CACHED_MAX: Final = 16_384
"""Topic names kept decoded, for all connections: the string is shared and so is its hash."""
TOPIC_CACHED_BYTES_MAX: Final = 256
"""Longer topic names are not cached: the cache stays under about 10 MB whatever peers send."""

PROPERTIES_CACHED_MAX: Final = 4_096
"""Properties of messages kept decoded: a publisher's content type or alias seldom changes."""
PROPERTIES_CACHED_BYTES_MAX: Final = 128
"""Longer properties are not cached."""

UNBOUNDED: Final = 1 << 40
"""More work than any bytes can make."""

OTHER_COST: Final = 4
"""Work of a PINGREQ and the like: it is answered by itself."""
FIELDS_COST: Final = 12
"""Work of a packet with fields (SUBSCRIBE, UNSUBSCRIBE, AUTH), to begin with."""
PUBLISH_COST_SHIFT: Final = 12
"""A PUBLISH is a unit of work, and one more for each 4 KiB."""
FIELDS_COST_SHIFT: Final = 4
"""What is read field by field (filters, properties) is a unit for each 16 bytes."""


@final
@mypyc_attr(acyclic=True)
class _Topic:
    """A topic name, and the bytes that it was read from."""

    __slots__ = ("name", "raw")

    def __init__(self, raw: bytes, name: str) -> None:
        self.raw: bytes = raw
        self.name: str = name


_NO_TOPIC: Final = _Topic(b"", "")

_topics: Final[dict[bytes, _Topic]] = {}
_properties: Final[dict[bytes, MessageProperties]] = {}

# Flags that the fixed header of each kind must carry ([MQTT-2.1.3-1]); -1 = any (PUBLISH).
_FLAGS: Final = (0, 0, 0, -1, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0)

_LEVEL_END: Final = 7
"""Bytes of a CONNECT's body up to its protocol level, its name being MQTT."""

_CLIENT_SENDS: Final = frozenset((1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15))
_SERVER_SENDS: Final = frozenset((2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15))


@final
class Decoder:
    """Packets out of one direction of a connection.

    Attributes:
        failure: what was wrong with the first bad packet; everything after it is discarded.
            In a CONNECT (``connected`` is still False) its reason code belongs into a CONNACK.
        version: 4 or 5, 0 until a CONNECT named it. Set as soon as the CONNECT names a level
            that is spoken here, even if the rest of the packet is bad.
        protocol_level: the level that the CONNECT named, spoken or not; 0 until then.
        protocol_name_ok: False if the CONNECT named another protocol.
        connected: a CONNECT was decoded (always True on the client's side).
        packet_size_max: longest packet taken, bytes with the fixed header; may be changed.

    Args:
        server_side: the peer is a client.
        packet_size_max: as above.
        version: 4 or 5, on the client's side.
        filters_max: topic filters that one SUBSCRIBE or UNSUBSCRIBE may have.
        properties_max: properties that one packet may have (the will's are counted apart).
    """

    __slots__ = (
        "_body_at",
        "_extra",
        "_filters_max",
        "_needed",
        "_padded",
        "_peer_sends",
        "_properties_max",
        "_rest",
        "_rest_at",
        "_server_side",
        "_spent",
        "_tail",
        "_topic",
        "connected",
        "failure",
        "packet_size_max",
        "protocol_level",
        "protocol_name_ok",
        "version",
    )

    def __init__(
        self,
        *,
        server_side: bool,
        packet_size_max: int,
        version: int = 0,
        filters_max: int = UNBOUNDED,
        properties_max: int = UNBOUNDED,
    ) -> None:
        self.failure: MqttError | None = None
        self.version: int = version
        self.protocol_level: int = 0
        self.protocol_name_ok: bool = True
        self.connected: bool = not server_side
        self.packet_size_max: int = packet_size_max
        self._server_side: bool = server_side
        self._peer_sends: frozenset[int] = _CLIENT_SENDS if server_side else _SERVER_SENDS
        # What the last PUBLISH was about: most clients publish to one topic again and again.
        self._topic: _Topic = _NO_TOPIC
        # The bytes of a packet that is not complete, and how many it takes to go on.
        self._tail: bytearray | None = None
        self._needed: int = 0
        self._body_at: int = 0
        self._padded: bool = False
        self._filters_max: int = filters_max
        self._properties_max: int = properties_max
        # What the budget had no room for, and from where on.
        self._rest: bytes | None = None
        self._rest_at: int = 0
        self._spent: bool = False
        # Work that the packet at hand makes beyond its own unit.
        self._extra: i64 = 0

    @property
    def has_more(self) -> bool:
        """Whether bytes are kept that were not looked at: ``feed`` goes on with them."""
        return self._rest is not None

    @property
    def incomplete_bytes(self) -> int:
        """Size of the packet of which some bytes are kept and more are needed; 0 = none is."""
        return self._needed if self._tail is not None else 0

    @property
    def kept_bytes(self) -> int:
        """How much is kept of a packet that is not complete."""
        return len(self._tail) if self._tail is not None else 0

    def close(self) -> None:
        """Let go of what is kept: the connection has ended, and may be collected much later."""
        self._tail = self._rest = None

    def feed(self, data: bytes, budget: int = UNBOUNDED) -> list[Packet]:
        """Take what the peer sent.

        Args:
            data: more bytes, perhaps none.
            budget: units of work after which decoding stops (see the ``COST`` constants); what is
                left is kept and ``has_more`` says so. With 0 everything is kept. A CONNECT ends
                any budget: what follows it is held to other limits.

        Returns:
            The packets that became complete, in order, up to the first bad one.
        """
        packets: list[Packet] = []
        if self.failure is not None:
            return packets
        start = 0
        tail = self._tail
        if tail is not None:
            tail += data
            if len(tail) < self._needed:
                return packets
            data = bytes(tail)
            self._tail = tail = None  # before the payload is copied: it may have megabytes
        elif self._rest is not None:
            if data:
                data = self._rest[self._rest_at :] + data
            else:
                data = self._rest
                start = self._rest_at
            self._rest = None
        at = start
        self._spent = budget <= 0
        if not self._spent:
            try:
                at = self._parse(data, start, budget, packets)
            except MqttError as error:
                # Its frames would hold all that was read, in a cycle with this decoder.
                self.failure = error.with_traceback(None)
                at = len(data)
        if at < len(data):
            if self._spent:
                self._rest = data
                self._rest_at = at
            else:
                self._tail = bytearray(data[at:])
        return packets

    def _parse(self, data: bytes, start: int, budget: int, packets: list[Packet]) -> int:
        """Append the complete packets of ``data``; return where what is left begins.

        Sets ``_spent`` if the budget has ended it, which it does not within a packet.
        """
        at: i64 = start
        left: i64 = budget
        end: i64 = len(data)
        while at + 1 < end:
            first: i64 = data[at]
            remaining: i64 = data[at + 1]
            body: i64 = at + 2
            if remaining > 0x7F:
                if first < 0x10:
                    self._check_header(first, 0)  # whatever the length turns out to be
                remaining = self._long_length(data, at + 1, end)
                if remaining < 0:
                    self._needed = end - at + 1
                    return at
                body = self._body_at
            stop: i64 = body + remaining
            if stop > end or stop - at > self.packet_size_max:
                # What the fixed header shows is refused before the body is waited for.
                if stop - at > self.packet_size_max and not self._knows_version(first, data, body):
                    self._needed = body - at + _LEVEL_END
                    return at
                self._check_header(first, stop - at)
                self._needed = stop - at
                return at
            if self.connected and first >> 4 == PUBLISH:
                packets.append(self._publish(first, data, body, stop))
                left -= 1 + (remaining >> PUBLISH_COST_SHIFT)
                if self._extra:
                    left -= self._extra
                    self._extra = 0
            elif (
                remaining == 2
                and self.connected
                and (first == 0x40 or first == 0x62 or first == 0x50 or first == 0x70)
            ):
                packet_id = data[body] << 8 | data[body + 1]
                if packet_id == 0:
                    raise ProtocolViolation("an acknowledgement has the packet identifier 0")
                packets.append(Ack(first >> 4, packet_id))
                left -= 1
            else:
                was_connected = self.connected
                packets.append(self._other(first, data, body, stop, stop - at))
                if remaining:
                    left -= FIELDS_COST + (remaining >> FIELDS_COST_SHIFT)
                else:
                    left -= OTHER_COST
                if not was_connected and budget < UNBOUNDED:
                    left = 0
            at = stop
            if left <= 0:
                self._spent = True
                break
        self._needed = 2
        return at

    def _knows_version(self, first: int, data: bytes, body: int) -> bool:
        """Whether a packet that is too large can be answered; False if more bytes are needed.

        A CONNECT is answered in the version that it names (3.2.2.2: CONNACK with 0x95), so its
        first bytes are waited for, but nothing of what it would have us hold.
        """
        if self.connected or first != CONNECT << 4:
            return True
        head = data[body : body + _LEVEL_END]
        if len(head) < _LEVEL_END:
            return False
        if head[:6] == b"\x00\x04MQTT" and head[6] in (V311, V5):
            self.version = self.protocol_level = head[6]
        return True

    def _long_length(self, data: bytes, at: int, end: int) -> int:
        """The remaining length of more than one byte, -1 if more bytes are needed.

        Sets ``_body_at``, and ``_padded`` if it is longer than it must be: 5.0 forbids that
        ([MQTT-1.5.5-1]), 3.1.1 does not, and before CONNECT nobody knows which one it is.
        """
        value = 0
        shift = 0
        while at < end:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._body_at = at
                self._padded = byte == 0
                if byte == 0 and self.version == V5:
                    raise MalformedPacket("the remaining length is longer than it must be")
                return value
            shift += 7
            if shift == 28:
                raise MalformedPacket("the remaining length has more than four bytes")
        return -1

    def _check_header(self, first: int, size: int) -> None:
        """Everything that is wrong with a packet before its body is looked at."""
        kind = first >> 4
        if kind == 0:
            # 2.1.2: forbidden. No clause says which error it is; like the types that go the
            # other way it is a packet that must not be sent, whatever its flags.
            raise ProtocolViolation("the packet type 0 is forbidden")
        if kind == AUTH and self.version == V311:
            raise MalformedPacket("the packet type 15 is reserved")
        if not self.connected and kind != CONNECT:
            # [MQTT-3.1.0-1]
            raise ProtocolViolation(f"the first packet is {KIND_NAMES[kind]}, not CONNECT")
        flags = _FLAGS[kind]
        if flags >= 0 and first & 15 != flags:
            raise MalformedPacket(f"{KIND_NAMES[kind]} has wrong flags in the fixed header")
        if kind == PUBLISH and (first & 6 == 6 or first & 14 == 8):
            # [MQTT-3.3.1-4] [MQTT-3.3.1-2]
            raise MalformedPacket("PUBLISH has QoS 3, or DUP with QoS 0")
        if kind not in self._peer_sends:
            raise ProtocolViolation(f"{KIND_NAMES[kind]} goes the other way")
        if kind == CONNECT and self.connected:
            raise ProtocolViolation("a second CONNECT")  # [MQTT-3.1.0-2]
        if size > self.packet_size_max:
            # 3.1.2.11.4, 3.2.2.3.6: answered with 0x95.
            raise MqttError(
                PACKET_TOO_LARGE,
                f"{KIND_NAMES[kind]} has {size} bytes, the limit is {self.packet_size_max}",
            )

    def _publish(self, first: i64, data: bytes, at: i64, stop: i64) -> Publish:
        qos: i64 = first >> 1 & 3
        retain = first & 1 == 1
        dup = first & 8 == 8
        start: i64 = at + 2
        if qos == 3 or (dup and not qos):
            self._check_header(first, 0)
        if start > stop:
            raise MalformedPacket("PUBLISH ends before its topic name")
        topic_end: i64 = start + (data[at] << 8 | data[at + 1])
        if topic_end > stop:
            raise MalformedPacket("the topic name is longer than the packet")
        raw = data[start:topic_end]
        if raw == self._topic.raw:
            topic = self._topic.name
        else:
            topic = self._other_topic(raw)
        packet_id: i64 = 0
        at = topic_end
        if qos:
            at += 2
            if at > stop:
                raise MalformedPacket("PUBLISH ends before its packet identifier")
            packet_id = data[topic_end] << 8 | data[topic_end + 1]
            if packet_id == 0:
                raise ProtocolViolation("PUBLISH has the packet identifier 0")  # [MQTT-2.2.1-3]
        if self.version != V5:
            if topic_end == start:
                raise MalformedPacket("the topic name is empty")  # [MQTT-4.7.3-1]
            return Publish(topic, data[at:stop], qos, retain, dup, packet_id)
        if at >= stop:
            raise MalformedPacket("PUBLISH ends before its properties")
        length = data[at]
        at += 1
        if length == 0:
            if topic_end == start:
                # 3.3.2.3.4
                raise ProtocolViolation("PUBLISH has neither a topic name nor a topic alias")
            return Publish(topic, data[at:stop], qos, retain, dup, packet_id)
        payload_at = at + length
        if length > 0x7F:
            at, payload_at = read_length(data, at - 1, stop)
        elif payload_at > stop:
            raise MalformedPacket("the properties are longer than the packet")
        raw_properties = data[at:payload_at]
        found = _properties.get(raw_properties)
        if found is None:
            found = _new_properties(raw_properties, self._properties_max)
            self._extra = len(raw_properties) >> FIELDS_COST_SHIFT
        if topic_end == start and not found.topic_alias:
            raise ProtocolViolation("PUBLISH has neither a topic name nor a topic alias")
        if found.identifiers and self._server_side:
            # [MQTT-3.3.4-6]
            raise ProtocolViolation("a client's PUBLISH has a subscription identifier")
        return Publish(
            topic,
            data[payload_at:stop],
            qos,
            retain,
            dup,
            packet_id,
            found.topic_alias,
            found.expiry_s,
            found.forward,
            found.identifiers,
        )

    def _other_topic(self, raw: bytes) -> str:
        """Another topic name than that of the PUBLISH before."""
        found = _topics.get(raw)
        if found is None:
            found = _new_topic(raw)
        if len(raw) <= TOPIC_CACHED_BYTES_MAX:
            self._topic = found
        return found.name

    def _other(self, first: int, data: bytes, at: int, stop: int, size: int) -> Packet:
        self._check_header(first, size)
        kind = first >> 4
        if kind == CONNECT:
            return self._connect(data, at, stop)
        if PUBACK <= kind <= PUBCOMP:
            return decode_body.read_ack(
                kind,
                data,
                at,
                stop,
                version=self.version,
                from_client=self._server_side,
                properties_max=self._properties_max,
            )
        if self._server_side:
            return decode_body.read_from_client(
                kind,
                data,
                at,
                stop,
                version=self.version,
                filters_max=self._filters_max,
                properties_max=self._properties_max,
            )
        if kind == CONNACK and self.version == V5 and data[at:stop] == b"\x00\x01":
            # A server of 3.1.1 alone refuses in its own format, which has no properties.
            raise MqttError(UNSUPPORTED_PROTOCOL_VERSION, "the server does not speak MQTT 5.0")
        return decode_body.read_from_server(kind, data, at, stop, version=self.version)

    def _connect(self, data: bytes, at: int, stop: int) -> Packet:
        name, level, at = decode_body.read_protocol(data, at, stop)
        self.protocol_level = level
        if name == b"MQIsdp" and level & 0x7F == 3:
            # MQTT 3.1: its clients know return code 1 of 3.1.1, so it is no stranger's name. A
            # bridge sets the upper bit.
            raise MqttError(UNSUPPORTED_PROTOCOL_VERSION, "MQTT 3.1 is not spoken here")
        if name != b"MQTT":
            self.protocol_name_ok = False
            raise MqttError(UNSUPPORTED_PROTOCOL_VERSION, "the protocol name is not MQTT")
        if level != V311 and level != V5:
            # [MQTT-3.1.2-2]
            raise MqttError(
                UNSUPPORTED_PROTOCOL_VERSION, f"the protocol level {level} is not supported"
            )
        self.version = level
        if self._padded and level == V5:
            raise MalformedPacket("the remaining length is longer than it must be")
        packet = decode_body.read_connect(
            data, at, stop, protocol=level, properties_max=self._properties_max
        )
        self.connected = True
        return packet


def _new_topic(raw: bytes) -> _Topic:
    """Validate a topic name that the cache does not hold; empty is for the caller to judge."""
    if not raw:
        return _NO_TOPIC
    name = name_of(raw)
    check_topic_name(name, "topic name")  # [MQTT-3.3.2-2]
    topic = _Topic(raw, name)
    if len(raw) <= TOPIC_CACHED_BYTES_MAX:
        if len(_topics) >= TOPICS_CACHED_MAX:
            # All of it at once: topics that are in use come back at their next PUBLISH.
            _topics.clear()
        _topics[raw] = topic
    return topic


def _new_properties(raw: bytes, properties_max: int) -> MessageProperties:
    """Read the properties of a PUBLISH that the cache does not hold; never changed afterwards.

    Those that the cache holds are too short to be too many.
    """
    found = read_message_properties(raw, 0, len(raw), PUBLISH, properties_max)
    if len(raw) <= PROPERTIES_CACHED_BYTES_MAX and not found.correlated:
        if len(_properties) >= PROPERTIES_CACHED_MAX:
            _properties.clear()
        _properties[raw] = found
    return found
