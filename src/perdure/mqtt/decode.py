"""Bytes to packets: framing, the checks of the fixed header, and the hot path of PUBLISH and acks.

The decoder of one direction of one connection. It does not know sockets, sessions or topics
beyond their form. Invariant: whatever the bytes and however they are cut, they either become
packets or set ``failure``; nothing is raised, and the result does not depend on the cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.errors import MqttError
from perdure.mqtt.decode_body import read_body
from perdure.mqtt.decode_cache import (
    NO_TOPIC,
    TOPIC_CACHED_BYTES_MAX,
    KnownTopic,
    message_properties,
    new_properties,
    topic_of,
)
from perdure.mqtt.decode_connect import (
    LEVEL_END,
    check_protocol,
    is_mqtt_31,
    named_level,
    read_connect,
    read_protocol,
)
from perdure.mqtt.decode_header import (
    FIELDS_COST,
    FIELDS_COST_SHIFT,
    OTHER_COST,
    PUBLISH_COST_SHIFT,
    UNBOUNDED,
    check_header,
    is_ack,
)
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation
from perdure.mqtt.packets import CONNECT, PUBLISH, V5, Ack, Packet, Publish
from perdure.mqtt.properties import read_length
from perdure.mqtt.puback_run import PUBACK_SIZE, PubackRun, end_of_pubacks

if TYPE_CHECKING:
    # A machine word in the compiled build; an int is asked at each step whether it is one.
    from mypy_extensions import i64


@final
class Decoder:
    """Packets out of one direction of a connection.

    Attributes:
        failure: what was wrong with the first bad packet; everything after it is discarded.
            In a CONNECT (``connected`` is still False) its reason code belongs into a CONNACK.
        version: 4 or 5, 0 until a CONNECT names one that is spoken here; its rest may be bad.
        protocol_level: the level that the CONNECT named, spoken or not; 0 until then.
        protocol_name_ok: False if the CONNECT named another protocol.
        connected: a CONNECT was decoded (always True on the client's side).
        packet_size_max: longest packet taken, bytes with the fixed header; may be changed.
        taken_bytes: length of what ``feed`` returned last.

    Args:
        server_side: the peer is a client.
        packet_size_max: as above.
        version: 4 or 5, on the client's side.
        filters_max: topic filters that one SUBSCRIBE or UNSUBSCRIBE may have.
        properties_max: properties that one packet may have (the will's are counted apart).
        joins_pubacks: PUBACKs in a row become one ``PubackRun``, as far as they came together.
    """

    __slots__ = (
        "_body_at",
        "_extra",
        "_filters_max",
        "_joins_pubacks",
        "_needed",
        "_padded",
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
        "taken_bytes",
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
        joins_pubacks: bool = False,
    ) -> None:
        self.failure: MqttError | None = None
        self.version: int = version
        self.protocol_level: int = 0
        self.protocol_name_ok: bool = True
        self.connected: bool = not server_side
        self.packet_size_max: int = packet_size_max
        self.taken_bytes: int = 0
        self._server_side: bool = server_side
        # What the last PUBLISH was about: most clients publish to one topic again and again.
        self._topic: KnownTopic = NO_TOPIC
        # The bytes of a packet that is not complete, and how many it takes to go on.
        self._tail: bytearray | None = None
        self._needed: int = 0
        self._body_at: int = 0
        self._padded: bool = False
        self._filters_max: int = filters_max
        self._properties_max: int = properties_max
        self._joins_pubacks: bool = joins_pubacks
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
            budget: units of work after which decoding stops (``decode_header``); what is left is
                kept (``has_more``). A CONNECT ends any: what follows it is held to other limits.

        Returns:
            The packets that became complete, in order, up to the first bad one.
        """
        packets: list[Packet] = []
        self.taken_bytes = 0
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
        self.taken_bytes = at - start
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
                    self._needed = body - at + LEVEL_END
                    return at
                self._check_header(first, stop - at)
                self._needed = stop - at
                return at
            if self.connected and first >> 4 == PUBLISH:
                packets.append(self._publish(first, data, body, stop))
                left -= 1 + (remaining >> PUBLISH_COST_SHIFT) + self._extra
                self._extra = 0
            elif remaining == 2 and self.connected and is_ack(first):
                packet_id = data[body] << 8 | data[body + 1]
                if packet_id == 0:
                    raise ProtocolViolation("an acknowledgement has the packet identifier 0")
                alone: i64 = stop
                # One whose length has more bytes than it needs (3.1.1 lets it) has another size.
                if first == 0x40 and self._joins_pubacks and stop - at == PUBACK_SIZE:
                    stop = end_of_pubacks(data, stop, end, left - 1)
                if stop == alone:
                    packets.append(Ack(first >> 4, packet_id))
                    left -= 1
                else:
                    packets.append(PubackRun(data[at:stop]))
                    left -= (stop - at) // PUBACK_SIZE
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
        level = named_level(data, body)
        if level > 0:
            self.version = self.protocol_level = level
        return level >= 0

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
        check_header(
            first,
            size,
            server_side=self._server_side,
            version=self.version,
            connected=self.connected,
            size_max=self.packet_size_max,
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
        known = self._topic
        if raw != known.raw:
            known = topic_of(raw)
            if topic_end - start <= TOPIC_CACHED_BYTES_MAX:
                self._topic = known
        topic = known.name
        self._extra = known.cost
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
        found = message_properties.get(raw_properties)
        if found is None:
            found = new_properties(raw_properties, self._properties_max)
            self._extra += len(raw_properties) >> FIELDS_COST_SHIFT
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

    def _other(self, first: int, data: bytes, at: int, stop: int, size: int) -> Packet:
        self._check_header(first, size)
        kind = first >> 4
        if kind == CONNECT:
            return self._connect(data, at, stop)
        return read_body(
            kind,
            data,
            at,
            stop,
            version=self.version,
            from_client=self._server_side,
            filters_max=self._filters_max,
            properties_max=self._properties_max,
        )

    def _connect(self, data: bytes, at: int, stop: int) -> Packet:
        name, level, at = read_protocol(data, at, stop)
        self.protocol_level = level
        self.protocol_name_ok = name == b"MQTT" or is_mqtt_31(name, level)
        check_protocol(name, level)
        self.version = level
        if self._padded and level == V5:
            raise MalformedPacket("the remaining length is longer than it must be")
        packet = read_connect(data, at, stop, protocol=level, properties_max=self._properties_max)
        self.connected = True
        return packet
