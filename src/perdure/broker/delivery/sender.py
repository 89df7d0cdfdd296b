"""What goes out to one client: pieces gathered over a turn, written once.

One join and one write per connection and turn: system calls cost more than the language
(HOTPATH section 3).
"""

from __future__ import annotations

from typing import Final, Protocol, final

from perdure.broker.commit.pipeline import CommitPipeline
from perdure.broker.commit.senders import Flushed
from perdure.broker.delivery.encoded_run import EncodedRun
from perdure.limits import REMAINING_LENGTH_MAX
from perdure.model import Message
from perdure.mqtt.aliases import OutboundAliases
from perdure.mqtt.encode import (
    ACK_SHORT,
    ACK_SHORT_BYTES,
    ack_bytes,
    append_publish,
    encode_within,
    publish_size,
)
from perdure.mqtt.packets import PUBACK, Packet
from perdure.mqtt.primitives import UINT16_BYTES
from perdure.observe.metrics import Metrics
from perdure.session.expiry import remaining_s
from perdure.session.seqno import PACKET_IDS


class Sink(Protocol):
    """Where bytes go; ``net`` has the real one."""

    def write(self, data: bytes) -> None:
        """Queue bytes for the peer."""
        ...


class OnWritable(Protocol):
    """Who has held messages back because the connection was congested."""

    def writable(self) -> None:
        """It is not congested any more."""
        ...


class Owner(Protocol):
    """The connection that sends."""

    def broke(self, error: Exception, where: str) -> None:
        """Sending failed as nobody expected: end the connection."""
        ...


SENT: Final = 0
EXPIRED: Final = 1
TOO_LARGE: Final = 2

WIRE_SIZE_MAX: Final = REMAINING_LENGTH_MAX + 5
"""No packet is larger on the wire."""

ENCODED_RUN_BYTES_MAX: Final = 64 * 1024
"""A longer run is not kept: what is kept stays in memory until the next one."""

ALIAS_BYTES: Final = 5
"""Most that announcing a topic alias adds: the property, and one more byte in each length."""


_LAST_RUN: Final = EncodedRun()


@final
class Sender(Flushed):
    """The outgoing half of a connection.

    Args:
        sink: the transport.
        pipeline: told when there is something to flush.
        metrics: packets and bytes sent.
        buffer_bytes: bytes gathered or in the transport's buffer beyond which the connection is
            congested.
        owner: told when sending fails; None = what fails is raised.
    """

    __slots__ = (
        "_buffer_bytes",
        "_first",
        "_holds",
        "_metrics",
        "_out",
        "_owner",
        "_pipeline",
        "_queued",
        "_sink",
        "aliases",
        "closed",
        "congested",
        "on_writable",
        "out_bytes",
        "packet_size_max",
        "paused",
        "version",
    )

    def __init__(
        self,
        sink: Sink,
        pipeline: CommitPipeline,
        metrics: Metrics,
        *,
        buffer_bytes: int,
        owner: Owner | None = None,
    ) -> None:
        self._sink = sink
        self._pipeline = pipeline
        self._metrics = metrics
        self._buffer_bytes = buffer_bytes
        self._out: list[bytes] = []
        self._owner: Owner | None = owner
        self._queued: bool = False
        self._holds: int = 0
        """Answers that everything gathered meanwhile waits for."""
        self._first: int = 0
        """Pieces of those that have come."""
        self.out_bytes: int = 0
        self.version: int = 4
        self.packet_size_max: int = 0
        """The client's Maximum Packet Size, bytes; 0 = no limit."""
        self.aliases: OutboundAliases | None = None
        self.paused: bool = False
        """The transport's buffer is above its high-water mark."""
        self.congested: bool = False
        """No further message should be sent now."""
        self.closed: bool = False
        self.on_writable: OnWritable | None = None

    def let_go(self, owner: Owner) -> None:
        """The connection is gone; another one is told in its place."""
        self._owner = owner
        self.on_writable = None

    def packet(self, packet: Packet) -> bool:
        """Send any packet but PUBLISH; False if the client's size limit leaves no form of it."""
        data = encode_within(packet, self.version, self.packet_size_max or WIRE_SIZE_MAX)
        if data is None:
            return False
        self._metrics.control_packets_sent[packet.kind] += 1
        self._add(data)
        return True

    def fits(self, packet: Packet) -> bool:
        """Whether the client's size limit leaves a form of a packet."""
        limit = self.packet_size_max
        return not limit or encode_within(packet, self.version, limit) is not None

    def ack(self, kind: int, packet_id: int, reason: int = 0) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self._metrics.control_packets_sent[kind] += 1
        out = self._out
        if reason:
            data = ack_bytes(kind, packet_id, reason, self.version)
            out.append(data)
            self.out_bytes += len(data)
        else:
            # Two pieces: what they are joined with later costs less than to join them now.
            out.append(ACK_SHORT[kind])
            out.append(UINT16_BYTES[packet_id])
            self.out_bytes += ACK_SHORT_BYTES
        if not self._queued:
            self._queued = True
            self._pipeline.flush_later(self)

    def acks(self, kind: int, packet_ids: list[bytes]) -> None:
        """Send acknowledgements of one kind without a reason code.

        Args:
            kind: PUBACK, PUBREC, PUBREL or PUBCOMP.
            packet_ids: identifiers in wire form (``UINT16_BYTES``), at least one.
        """
        count = len(packet_ids)
        if kind == PUBACK:
            self._metrics.pubacks_sent += count
        else:
            self._metrics.control_packets_sent[kind] += count
        head = ACK_SHORT[kind]
        self._out.append(head)
        self._out.append(head.join(packet_ids))
        self.out_bytes += ACK_SHORT_BYTES * count
        if not self._queued:
            self._queued = True
            self._pipeline.flush_later(self)

    def publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        now_us: int,
    ) -> int:
        """Send a message. Returns SENT, EXPIRED or TOO_LARGE (nothing was sent)."""
        expiry_s = -1
        if message.expires_at_us:
            expiry_s = remaining_s(message.expires_at_us, now_us)
            if expiry_s == 0 and not dup:
                return EXPIRED
        alias = 0
        omit_topic = False
        if self.packet_size_max or self.aliases is not None:
            alias, omit_topic = self._fit(
                message, qos, retain, dup, packet_id, identifiers, expiry_s
            )
            if alias < 0:
                return TOO_LARGE
        size = append_publish(
            self._out,
            message,
            self.version,
            qos,
            retain,
            dup,
            packet_id,
            expiry_s,
            identifiers,
            alias,
            omit_topic,
        )
        metrics = self._metrics
        if qos == 1:
            metrics.messages_delivered_1 += 1
        elif qos:
            metrics.messages_delivered_2 += 1
        else:
            metrics.messages_delivered_0 += 1
        metrics.payload_bytes_sent += len(message.payload)
        self.out_bytes += size
        if self.out_bytes > self._buffer_bytes:
            self.congested = True
        if not self._queued:
            self._queued = True
            self._pipeline.flush_later(self)
        return SENT

    def is_plain(self) -> bool:
        """Whether a message can be sent now as it is: there is room, and the client has neither a
        size limit nor aliases."""
        return not self.congested and not self.packet_size_max and self.aliases is None

    def publish_run(
        self, messages: list[Message], packet_id: int, identifiers: tuple[int, ...]
    ) -> int:
        """Send messages with QoS 1 that do not expire, while ``is_plain``; at least one.

        Args:
            messages: what to send.
            packet_id: of the first; the others follow it.
            identifiers: subscription identifiers.

        Returns:
            How many were sent before the connection was congested.
        """
        version = self.version
        left = self._buffer_bytes - self.out_bytes
        last = _LAST_RUN
        is_same = last.is_of(messages, version, packet_id, identifiers)
        if is_same and last.data and len(last.data) <= left:
            self._out.append(last.data)
            self._ran(len(messages), last.payload_bytes, len(last.data))
            return len(messages)
        pieces: list[bytes] = [] if is_same else self._out
        first_id = packet_id
        size = payload = count = 0
        for message in messages:
            size += append_publish(
                pieces, message, version, 1, False, False, packet_id, -1, identifiers
            )
            payload += len(message.payload)
            count += 1
            if size > left:
                self.congested = True
                break
            packet_id = packet_id % PACKET_IDS + 1
        if is_same:
            data = b"".join(pieces)
            self._out.append(data)
            if count == len(messages):
                last.data = data
                last.payload_bytes = payload
        elif size <= ENCODED_RUN_BYTES_MAX:
            last.keep(messages, version, first_id, identifiers)
        else:
            last.forget()
        self._ran(count, payload, size)
        return count

    def _ran(self, count: int, payload_bytes: int, size: int) -> None:
        """Messages of a run were gathered."""
        self._metrics.messages_delivered_1 += count
        self._metrics.payload_bytes_sent += payload_bytes
        self.out_bytes += size
        if not self._queued:
            self._queued = True
            self._pipeline.flush_later(self)

    def _fit(
        self,
        message: Message,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        expiry_s: int,
    ) -> tuple[int, bool]:
        """For a client with a size limit or aliases: the topic alias (0 = none, -1 = the message is
        too large), and whether it stands for the topic name."""
        limit = self.packet_size_max
        plain_size = 0
        if limit:
            plain_size = publish_size(
                message, self.version, qos, retain, dup, packet_id, expiry_s, identifiers
            )
            if plain_size > limit:
                return -1, False
        if self.aliases is not None and (not limit or plain_size + ALIAS_BYTES <= limit):
            return self.aliases.assign(message.topic)
        return 0, False

    def hold(self) -> None:
        """Gather only, from now on, until ``release`` has come as often: an answer that waits for
        its commit goes before what its request brings. What exceeds the buffer is congestion."""
        if not self._holds:
            self.flush()
        self._holds += 1

    def release(self, packet: Packet | None) -> None:
        """Send an answer before what was gathered since ``hold``; None = it comes later."""
        if packet is not None:
            data = encode_within(packet, self.version, self.packet_size_max or WIRE_SIZE_MAX)
            if data is not None:
                self._metrics.control_packets_sent[packet.kind] += 1
                self._out.insert(self._first, data)
                self._first += 1
                self.out_bytes += len(data)
        self._holds -= 1
        if not self._holds:
            self._first = 0
            self._pipeline.flush_later(self)

    def _add(self, data: bytes) -> None:
        self._out.append(data)
        self.out_bytes += len(data)
        if not self._queued:
            self._queued = True
            self._pipeline.flush_later(self)

    def flush_turn(self) -> None:
        """Write what was gathered, at the end of a turn: a failure is this connection's alone."""
        if self._holds:
            return
        try:
            self.flush()
        except Exception as error:
            if self._owner is None:
                raise
            self._owner.broke(error, "send")

    def flush(self) -> None:
        """Write what was gathered."""
        self._queued = False
        out = self._out
        if not out:
            return
        self._out = []
        self._metrics.bytes_sent += self.out_bytes
        self.out_bytes = 0
        if not self.closed:
            self._sink.write(b"".join(out) if len(out) > 1 else out[0])
        if self.congested and not self.paused:
            # What was gathered was more than the buffer, and the transport has taken it all: no
            # other event may come that lets the session go on.
            self.congested = False
            if self.on_writable is not None and not self.closed:
                self.on_writable.writable()
        else:
            self.congested = self.paused
