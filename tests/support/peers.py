"""A publisher and a subscriber that watch the broker's every packet.

Both are sans-I/O: bytes in, bytes out, so that the checks have unit tests with planted faults.
Client libraries hide packet identifiers and the DUP flag; these keep them, and hold the broker to:

- a session that was made is present at every later CONNACK;
- what was delivered and comes again has its old packet identifier and DUP, and never comes twice
  over one connection;
- a packet identifier is not used for a second message while the first is in flight;
- an acknowledgement answers something that was sent, and says success.

The breaches are texts in ``breaches``; loss, repeats and order are ``tests.support.delivery``'s.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import msgspec

from tests.support import packets
from tests.support.delivery import Ledger, Receipts, Stamp
from tests.support.packets import Packet, Splitter

PACKET_ID_MAX = 65_535
SUBSCRIBE_ID = 1
IDENTIFIER_NOT_FOUND = 0x92
SERVER_SHUTTING_DOWN = 0x8B


class Peer:
    """What both have in common: a durable session over connections that come and go.

    Args:
        client_id: the client identifier.
        protocol: 4 or 5.

    Attributes:
        forgives: reason codes that are no breach: the broker's store may fail, say.
        breaches: what the broker did wrong, in words.
        connection_count: CONNACKs so far.
        is_connected: CONNACK came on the present connection.
        expects_new: the broker was restored from a backup: its next CONNACK must say so.
    """

    def __init__(self, client_id: str, *, protocol: int) -> None:
        self.expects_new = False
        self.client_id = client_id
        self.protocol = protocol
        self.forgives: frozenset[int] = frozenset()
        self.breaches: list[str] = []
        self.connection_count = 0
        self.is_connected = False
        self._splitter = Splitter()
        self._has_session = False

    def connect(self) -> bytes:
        """Begin a new connection: the CONNECT packet."""
        self.is_connected = False
        self._splitter = Splitter()
        return packets.connect(
            self.client_id, protocol=self.protocol, receive_maximum=self.receive_maximum()
        )

    def receive_maximum(self) -> int:
        """What a 5.0 peer says in CONNECT; 0 = nothing."""
        return 0

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the broker; returns the bytes to answer."""
        return b"".join(self._receive(packet) for packet in self._splitter.feed(data))

    def begin_anew(self) -> None:
        """Session Present was 0: forget what belongs to the session."""
        raise NotImplementedError

    def on_connected(self) -> bytes:
        """CONNACK came: what to send first."""
        raise NotImplementedError

    def on_packet(self, packet: Packet) -> bytes:
        """Any other packet."""
        raise NotImplementedError

    def blame(self, text: str) -> None:
        """Record a breach."""
        self.breaches.append(f"{self.client_id}: {text}")

    def _receive(self, packet: Packet) -> bytes:
        if packet.kind == packets.DISCONNECT:
            code = packet.body[0] if packet.body else 0
            if code != SERVER_SHUTTING_DOWN and code not in self.forgives:
                self.blame(f"disconnected with {code:#04x}")
            return b""
        if packet.kind != packets.CONNACK:
            return self.on_packet(packet)
        is_present, code = packets.read_connack(packet)
        if code:
            if code not in self.forgives:
                self.blame(f"refused at CONNECT with {code:#04x}")
            return b""
        if self.expects_new:
            # [MQTT-3.2.2-5] whoever is told so discards what it remembers.
            if is_present:
                self.blame("it was not told that the broker was restored")
            self.expects_new = False
            self.begin_anew()
        elif self._has_session and not is_present:
            self.blame("the session was forgotten")
        self.is_connected = True
        self.connection_count += 1
        return self.on_connected()

    def session_stands(self) -> None:
        """The broker has confirmed something that belongs to the session: it must last."""
        self._has_session = True


class _Outgoing(msgspec.Struct):
    """A message between its PUBLISH and the end of its exchange."""

    topic: str
    stamp: Stamp
    qos: int
    retain: bool = False
    is_released: bool = False
    is_resent: bool = False


@final
class Publisher(Peer):
    """Publishes stamped messages and sees each exchange through.

    Args:
        ledger: where sent and acknowledged messages are written down.
        clock: wall time in microseconds.
        payload_size: bytes.
        labels: what a message says besides, as user properties; a publisher of 3.1.1 can't.
    """

    def __init__(
        self,
        client_id: str,
        *,
        protocol: int,
        ledger: Ledger,
        clock: Callable[[], int],
        payload_size: int = 32,
        labels: Callable[[Stamp], Sequence[tuple[str, str]]] = lambda stamp: (),
    ) -> None:
        super().__init__(client_id, protocol=protocol)
        self._labels = labels
        self.under_way: dict[int, _Outgoing] = {}
        self._ledger = ledger
        self._clock = clock
        self._payload_size = payload_size
        self._packet_id = 0

    def publish(self, topic: str, *, qos: int, retain: bool = False) -> bytes:
        """Send the next message of this publisher on a topic."""
        stamp = self._ledger.send(self.client_id, topic, qos=qos, at_us=self._clock())
        packet_id = self._free_packet_id()
        outgoing = self.under_way[packet_id] = _Outgoing(topic, stamp, qos, retain)
        return self._publish(packet_id, outgoing, dup=False)

    def begin_anew(self) -> None:
        """What was under way is given up."""
        self.under_way.clear()

    def on_connected(self) -> bytes:
        """Send again what is under way, in its order [MQTT-4.4.0-1]."""
        self.session_stands()
        answer = []
        for packet_id, outgoing in self.under_way.items():
            outgoing.is_resent = True
            if outgoing.is_released:
                answer.append(packets.acknowledgement(packets.PUBREL, packet_id))
                continue
            if outgoing.qos == 1:
                # To the broker each copy is a message of its own; the attempt tells them apart.
                outgoing.stamp = msgspec.structs.replace(
                    outgoing.stamp, attempt=outgoing.stamp.attempt + 1
                )
            answer.append(self._publish(packet_id, outgoing, dup=True))
        return b"".join(answer)

    def on_packet(self, packet: Packet) -> bytes:
        """Follow the exchanges."""
        if packet.kind not in {packets.PUBACK, packets.PUBREC, packets.PUBCOMP}:
            self.blame(f"an unexpected packet of type {packet.kind}: {packet.body[:8]!r}")
            return b""
        packet_id, code = packets.read_acknowledgement(packet)
        outgoing = self.under_way.get(packet_id)
        if outgoing is None:
            self.blame(f"an acknowledgement (type {packet.kind}) of {packet_id}, not under way")
            return b""
        if code >= 0x80 and code in self.forgives and not outgoing.is_released:
            # Not taken: the exchange is over, and nothing was promised.
            del self.under_way[packet_id]
            return b""
        # After a crash the PUBREL that goes out again may find its exchange ended: PUBCOMP with
        # "packet identifier not found" then ends it here too (MQTT 5.0 section 4.3.3).
        is_ended = packet.kind == packets.PUBCOMP and code == IDENTIFIER_NOT_FOUND
        if code >= 0x80 and not (is_ended and outgoing.is_resent):
            self.blame(f"{packet_id} was refused with {code:#04x}")
        expected = packets.PUBACK if outgoing.qos == 1 else packets.PUBREC
        if outgoing.is_released:
            expected = packets.PUBCOMP
        if packet.kind != expected:
            self.blame(f"{packet_id} was answered with type {packet.kind} instead of {expected}")
            return b""
        if packet.kind != packets.PUBCOMP:
            self._ledger.acknowledge(outgoing.topic, outgoing.stamp, at_us=self._clock())
        if packet.kind == packets.PUBREC:
            outgoing.is_released = True
            return packets.acknowledgement(packets.PUBREL, packet_id)
        del self.under_way[packet_id]
        return b""

    def _publish(self, packet_id: int, outgoing: _Outgoing, *, dup: bool) -> bytes:
        return packets.publish(
            outgoing.topic,
            outgoing.stamp.encode(self._payload_size),
            qos=outgoing.qos,
            packet_id=packet_id,
            dup=dup,
            protocol=self.protocol,
            retain=outgoing.retain,
            user=self._labels(outgoing.stamp),
        )

    def _free_packet_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % PACKET_ID_MAX + 1
            if self._packet_id not in self.under_way:
                return self._packet_id


class _Delivery(msgspec.Struct):
    """How a message last came."""

    packet_id: int
    connection: int
    power_cuts: int


_Name: TypeAlias = tuple[str, bytes, bool]
"""What makes a delivery known again: topic, payload, RETAIN."""


@final
class Subscriber(Peer):
    """Subscribes durably, acknowledges when it likes, and remembers every packet identifier.

    Args:
        filters: topic filters, each with its maximum QoS.
        chance: decides which acknowledgements are held back.
        hold: share of the acknowledgements that are held back, to be sent in chance order.
        prefix: put before each filter: ``$share/{group}/`` or ``$replay/{from}/``.
        receipts: shared with other members of a group, perhaps; None = its own.
        content: a content filter, of a 5.0 subscriber; empty = none.

    Attributes:
        power_cuts: times that the broker's machine lost its power, to be counted from outside.
        retained: the latest retained message of each topic. They are not in the receipts.
    """

    HELD_MAX = 64

    def __init__(
        self,
        client_id: str,
        filters: Sequence[tuple[str, int]],
        *,
        protocol: int,
        chance: random.Random,
        hold: float = 0.0,
        prefix: str = "",
        receipts: Receipts | None = None,
        content: str = "",
    ) -> None:
        super().__init__(client_id, protocol=protocol)
        self.filters = tuple(filters)
        self.receipts = receipts or Receipts(client_id, dict(filters))
        self.retained: dict[str, bytes] = {}
        self.power_cuts = 0
        self._has_feeds = False
        self.is_subscribed = False
        self._prefix = prefix
        self._properties = [("filter", content)] if content else []
        self.hold = hold
        self.window = 0
        self._chance = chance
        self._held: list[bytes] = []
        self._in_use: dict[int, _Name] = {}
        self._recorded: dict[int, _Name] = {}
        self._deliveries: dict[_Name, _Delivery] = {}
        self._before_restore: set[_Name] = set()

    def forget_messages(self) -> None:
        """Start a new count; the session and its exchanges go on."""
        self.receipts = self.receipts.anew()
        self._deliveries.clear()

    def begin_anew(self) -> None:
        """What came before may come again, and must say so."""
        self._recorded.clear()
        self._before_restore |= set(self._deliveries)
        self._deliveries.clear()

    def receive_maximum(self) -> int:
        """The window that was set from outside."""
        return self.window

    def on_connected(self) -> bytes:
        """Subscribe the first time; what was held back died with the connection."""
        self._held.clear()
        self._in_use.clear()
        if self.is_subscribed:
            return b""
        return self.subscribe()

    def subscribe(self) -> bytes:
        """SUBSCRIBE, also again: then retained messages come once more, and nothing is lost."""
        self._has_feeds = self._has_feeds or self.is_subscribed
        filters = [(self._prefix + name, qos) for name, qos in self.filters]
        return packets.subscribe(
            SUBSCRIBE_ID, filters, protocol=self.protocol, user=self._properties
        )

    def on_packet(self, packet: Packet) -> bytes:
        """Take messages and their releases."""
        if packet.kind == packets.SUBACK:
            granted = packets.read_suback(packet, protocol=self.protocol)
            if granted != [qos for _, qos in self.filters]:
                self.blame(f"granted {granted}")
            self.is_subscribed = True
            self.session_stands()
            return b""
        if packet.kind == packets.PUBREL:
            packet_id, _ = packets.read_acknowledgement(packet)
            # After a crash the broker may not know that it was released; PUBCOMP tells it.
            self._recorded.pop(packet_id, None)
            self._in_use.pop(packet_id, None)
            return packets.acknowledgement(packets.PUBCOMP, packet_id)
        if packet.kind != packets.PUBLISH:
            self.blame(f"an unexpected packet of type {packet.kind}: {packet.body[:8]!r}")
            return b""
        return self._take(packets.read_publish(packet, protocol=self.protocol))

    def release_held(self) -> bytes:
        """Send what was held back, in chance order."""
        self._chance.shuffle(self._held)
        answers, self._held = self._held, []
        for answer in answers:
            self._settle(answer)
        return b"".join(answers)

    def _take(self, message: packets.Publication) -> bytes:
        name = (message.topic, message.payload, message.retain)
        if not message.qos:
            self._keep(message)
            return b""
        self._check_redelivery(message, name)
        self._in_use[message.packet_id] = name
        if message.qos == 1:
            self._keep(message)
            return self._answer(packets.PUBACK, message.packet_id)
        recorded = self._recorded.get(message.packet_id)
        if recorded is None:
            self._keep(message)
        elif recorded != name:
            self.blame(f"{message.packet_id} carries a new message before its release")
        self._recorded[message.packet_id] = name
        return self._answer(packets.PUBREC, message.packet_id)

    def _keep(self, message: packets.Publication) -> None:
        if message.retain:
            self.retained[message.topic] = message.payload
        else:
            self.receipts.take(message.topic, message.payload, qos=message.qos)

    def _check_redelivery(self, message: packets.Publication, name: _Name) -> None:
        """Compare with how the same message came before, and with what is in flight."""
        what = f"{message.topic} {message.payload[:24]!r}"
        earlier = self._deliveries.get(name)
        if earlier is None and name in self._before_restore and not message.dup:
            self.blame(f"{what}: came again after a restore without DUP")
        if message.retain or self._prefix.startswith("$share/"):
            # A retained message comes again with each SUBSCRIBE, and what passes to another
            # member and back is another delivery: only what is in flight can be compared.
            if self._in_use.get(message.packet_id, name) != name:
                self.blame(f"{what}: its packet identifier {message.packet_id} is in flight")
            return
        if earlier is None or self._may_be_new(message, earlier):
            if message.packet_id in self._in_use:
                self.blame(f"{what}: its packet identifier {message.packet_id} is in flight")
        else:
            if earlier.connection == self.connection_count:
                self.blame(f"{what}: sent again on a live connection")
            if earlier.packet_id != message.packet_id:
                self.blame(f"{what}: came as {earlier.packet_id}, again as {message.packet_id}")
            if not message.dup:
                self.blame(f"{what}: came again without DUP")
        self._deliveries[name] = _Delivery(
            message.packet_id, self.connection_count, self.power_cuts
        )

    def _may_be_new(self, message: packets.Publication, earlier: _Delivery) -> bool:
        """A backfill's QoS 1 messages are sent once written: a power cut may take the entry of the
        private stream with it, and then the message is given anew."""
        return message.qos == 1 and self._has_feeds and earlier.power_cuts != self.power_cuts

    def _answer(self, kind: int, packet_id: int) -> bytes:
        answer = packets.acknowledgement(kind, packet_id)
        if self._chance.random() < self.hold:
            self._held.append(answer)
            return self.release_held() if len(self._held) >= self.HELD_MAX else b""
        self._settle(answer)
        return answer

    def _settle(self, answer: bytes) -> None:
        """A PUBACK frees its packet identifier; a PUBREC does not, its PUBREL will."""
        if answer[0] >> 4 == packets.PUBACK:
            self._in_use.pop(int.from_bytes(answer[2:4], "big"), None)
