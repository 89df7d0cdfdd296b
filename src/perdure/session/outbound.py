"""What a session is owed: serial numbers, the inflight window and the cursor.

Every message that the session is owed takes one serial number, in offset order. It is then
*pending* until the window has room, *in flight* until the client has acknowledged it, and
*settled* after that. The cursor (``Cursor``) is the lower edge: all serials up to
``acked_serial`` are settled, and everything the log holds up to ``acked_offset`` with them.
Acknowledgements are accepted in any order (trap 19).

Two tracks, by the QoS of the delivery (MQTT 5.0 section 4.3)::

    QoS 1   SENT --PUBACK--> settled
    QoS 2   SENT --PUBREC--> RELEASED --PUBCOMP--> settled
            SENT --PUBREC >= 0x80--> settled
            RELEASED --PUBREC--> RELEASED (PUBREL again)

Anything else is a protocol violation of the peer (trap 8), except an acknowledgement of an
identifier that is not in flight: it may answer something from before a crash.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from perdure.model import Cursor, InboxEntry, Message
from perdure.mqtt.errors import ProtocolViolation
from perdure.mqtt.puback_run import PUBACK_SIZE, PubackRun
from perdure.session.inflight import RELEASED, SENT, Delivery, Inflight
from perdure.session.seqno import PACKET_IDS, packet_id_of

if TYPE_CHECKING:
    from mypy_extensions import i64

ACK_UNKNOWN: Final = 0
"""The identifier is not in flight."""
ACK_SETTLED: Final = 1
"""The exchange is done."""
ACK_RELEASE: Final = 2
"""PUBREL is owed, once the cursor with the PUBREC is committed."""


_NONE_PENDING: Final[deque[Delivery]] = deque(maxlen=0)
"""The queue of every session that has nothing pending: one of its own would take 760 bytes."""


def _serial_of(delivery: Delivery) -> int:
    return delivery.serial


@final
class Outbound:
    """The outbound half of a session.

    Args:
        cursor: where an earlier connection left off.
        window_max: most messages in flight, >= 1: the smaller of the client's Receive Maximum
            and the broker's own bound.
        catch_up_max: most messages in flight to a session that catches up, >= ``window_max``; what
            is beyond that has QoS 1 and is kept as at most ``window_max`` runs. 0 = no more.
        maybe_sent_offset: the broker died while a connection held the session: messages up to
            this offset may have been sent although the cursor does not say so. All of them go
            out with DUP (trap 3): a cursor may be some milliseconds old, so nobody knows how
            many it were.
    """

    __slots__ = (
        "_gaps",
        "_old_released",
        "_old_settled",
        "_settled",
        "acked_offset",
        "acked_serial",
        "catch_up_max",
        "dirty",
        "inflight",
        "maybe_sent_offset",
        "next_serial",
        "pending",
        "pending_bytes",
        "sent_serial",
        "window_max",
    )

    def __init__(
        self,
        cursor: Cursor,
        *,
        window_max: int,
        catch_up_max: int = 0,
        maybe_sent_offset: int = 0,
    ) -> None:
        assert window_max >= 1
        self.window_max: int = window_max
        self.catch_up_max: int = max(window_max, catch_up_max)
        self.acked_offset: int = cursor.offset
        self.acked_serial: int = cursor.serial
        self.next_serial: int = cursor.serial + 1
        self.sent_serial: int = cursor.sent
        self.inflight: Inflight = Inflight()
        self.pending: deque[Delivery] = _NONE_PENDING
        """In the order of their serial numbers; not to be changed from outside."""
        self.pending_bytes: int = 0
        self.dirty: bool = False
        self._settled: dict[int, int] = {}
        self._gaps: dict[int, int] = {}
        # Sets, as dicts: an empty one takes a quarter of the memory, and every session has them.
        self._old_settled: dict[int, None] = dict.fromkeys(cursor.settled)
        self._old_released: dict[int, None] = dict.fromkeys(cursor.released)
        self.maybe_sent_offset: int = maybe_sent_offset
        """What is owed up to here goes out with DUP; to be moved forward only."""

    def offer(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        offset: int,
        group_key: str = "",
    ) -> Delivery | None:
        """Give the session the next message it is owed.

        Offsets must come in ascending order: the serial number is counted here.

        Returns:
            The delivery if it is to be sent now: as PUBLISH in state SENT, as PUBREL in state
            RELEASED. None if it waits in ``pending`` or was settled by an earlier connection.
        """
        serial = self.next_serial
        self.next_serial = serial + 1
        if self._old_settled and serial in self._old_settled:
            self._old_settled.pop(serial, None)
            self._settle(serial, offset)
            return None
        delivery = Delivery(message, qos, retain, identifiers, offset, serial, group_key)
        if self._old_released and serial in self._old_released:
            delivery.state = RELEASED
            delivery.qos = 2
            if serial <= self.acked_serial + PACKET_IDS:
                self._old_released.pop(serial, None)
                self.inflight.add(delivery)
                return delivery
            # Taken over from a broker that had given an identifier twice: the first goes first.
            self._wait(delivery)
            return None
        if serial <= self.sent_serial or offset <= self.maybe_sent_offset:
            delivery.dup = True
        if self.pending is _NONE_PENDING and self._has_window(serial):
            self._send(delivery)
            return delivery
        self._wait(delivery)
        return None

    def offer_plain(self, offset: int, identifiers: tuple[int, ...], group_key: str) -> int:
        """As ``offer`` for a message of QoS 1 without RETAIN that is sent at once.

        Returns:
            Its packet identifier; 0 = it has to be offered, and nothing has changed.
        """
        if self.room_for_run(offset) < 1:
            return 0
        serial = self.next_serial
        inflight = self.inflight
        inflight.runs.add(serial, offset, 1, identifiers, group_key)
        inflight.count += 1
        self.next_serial = serial + 1
        self.sent_serial = serial
        return (serial - 1) % PACKET_IDS + 1

    def room_for_run(self, offset: int, *, catches_up: bool = False) -> int:
        """How many messages from ``offset`` on ``offer_run`` takes: 0 if something waits before
        them, or if an earlier connection may have sent them.

        Args:
            offset: of the first.
            catches_up: they are read from the log for a session that is behind.
        """
        serial = self.next_serial
        if (
            self.pending is not _NONE_PENDING
            or self._old_settled
            or self._old_released
            or serial <= self.sent_serial
            or offset <= self.maybe_sent_offset
        ):
            return 0
        left = self.catch_up_left() if catches_up else self.window_max - self.inflight.count
        return min(left, self.acked_serial + PACKET_IDS + 1 - serial)

    def catch_up_left(self) -> int:
        """How many more messages may be in flight to a session that catches up.

        What a client has not acknowledged costs memory for each run, so these are bounded as
        messages are that have a place each.
        """
        inflight = self.inflight
        left = self.window_max - inflight.count
        beyond = min(
            self.catch_up_max - inflight.count, self.window_max - len(inflight.runs.runs())
        )
        return max(left, beyond)

    def next_packet_id(self) -> int:
        """The packet identifier of the next message that the session is owed."""
        return packet_id_of(self.next_serial)

    def offer_run(self, messages: list[Message], identifiers: tuple[int, ...]) -> None:
        """As ``offer`` for QoS 1 messages that are being sent, without RETAIN.

        Args:
            messages: at most ``room_for_run``.
        """
        inflight = self.inflight
        count = len(messages)
        serial = self.next_serial
        first = messages[0].offset
        if messages[-1].offset - first == count - 1:
            # Of one commit, all of which the client is sent: most are.
            inflight.runs.add(serial, first, count, identifiers, "")
            serial += count
        else:
            for message in messages:
                inflight.runs.add(serial, message.offset, 1, identifiers, "")
                serial += 1
        inflight.count += count
        self.next_serial = serial
        self.sent_serial = serial - 1

    def offer_entries(self, entries: list[InboxEntry]) -> None:
        """``offer_run`` for entries of the private stream that a group gave."""
        inflight = self.inflight
        serial = self.next_serial
        for entry in entries:
            inflight.runs.add(serial, entry.offset, 1, entry.identifiers, entry.group_key)
            serial += 1
        inflight.count += len(entries)
        self.next_serial = serial
        self.sent_serial = serial - 1

    def pass_to(self, serial: int) -> None:
        """The next owed message has this serial number; those that are left out are settled.

        They belong to no message, so a cursor names none of them: whoever offers the same again
        leaves the same out. A number that has been passed already changes nothing.
        """
        first = self.next_serial
        if serial <= first:
            return
        if self.acked_serial + 1 == first:
            self.acked_serial = serial - 1
        else:
            self._gaps[first] = serial - 1
        self.next_serial = serial

    def skip(self, offset: int) -> None:
        """Settle the next owed message without sending it: it still takes its serial number."""
        serial = self.next_serial
        self.next_serial = serial + 1
        self._old_settled.pop(serial, None)
        self._old_released.pop(serial, None)
        self._settle(serial, offset)

    def is_half_done(self, serial: int) -> bool:
        """Whether an earlier connection got a PUBREC for this serial number.

        Such an exchange is session state: it is completed even when the message has expired
        since (trap 13).
        """
        return serial in self._old_released

    def was_sent(self, serial: int) -> bool:
        """Whether the message with this serial number may have been sent already."""
        return serial <= self.sent_serial or serial in self._old_released

    def was_settled(self, serial: int) -> bool:
        """Whether an earlier connection has settled this serial number."""
        return serial in self._old_settled

    def next_to_send(self) -> Delivery | None:
        """Take the next pending delivery for which the window has room, or None."""
        if not self.pending:
            return None
        delivery = self.pending[0]
        if not self._has_window(delivery.serial):
            return None
        self.pending.popleft()
        self.pending_bytes -= delivery.size
        if not self.pending:
            self.pending = _NONE_PENDING
        if delivery.state == RELEASED:
            self._old_released.pop(delivery.serial, None)
        self._send(delivery)
        return delivery

    def withdraw(self, deliveries: list[Delivery]) -> None:
        """Settle deliveries of ``pending`` that are not to be sent any more."""
        serials = {delivery.serial for delivery in deliveries}
        kept = deque(delivery for delivery in self.pending if delivery.serial not in serials)
        self.pending = kept or _NONE_PENDING
        for delivery in deliveries:
            self.pending_bytes -= delivery.size
            self._settle(delivery.serial, delivery.offset)

    def settle_unsent(self, delivery: Delivery) -> None:
        """Settle a delivery that ``offer`` or ``next_to_send`` gave out and that cannot be sent
        (expired, too large for the client, not authorised any more)."""
        self.inflight.take(delivery.packet_id)
        self._settle(delivery.serial, delivery.offset)

    def acknowledge_run(self, run: PubackRun) -> bool:
        """PUBACKs one behind the other, most of them in the order of what they answer.

        Returns:
            Whether they settled anything that a shared group gave.

        Raises:
            ProtocolViolation: as of ``acknowledge``; those before it count.
        """
        raw = run.raw
        inflight = self.inflight
        of_group = False
        at: i64 = 0
        end: i64 = len(raw)
        while at < end:
            serial = self.acked_serial + 1
            settled = inflight.runs.settle_in_order(raw, at, serial)
            if settled is None:
                delivery = self.acknowledge(raw[at + 2] << 8 | raw[at + 3])
                of_group |= delivery is not None and bool(delivery.group_key)
                at += PUBACK_SIZE
                continue
            of_group |= bool(settled.group_key)
            count = settled.serial - serial
            inflight.count -= count
            self.acked_serial += count - 1
            self._settle(settled.serial - 1, settled.offset - 1)
            at += count * PUBACK_SIZE
        return of_group

    def acknowledge(self, packet_id: int) -> Delivery | None:
        """PUBACK. Returns the delivery that it settled, None for an unknown identifier."""
        inflight = self.inflight
        delivery = inflight.take(packet_id)
        if delivery is None:
            return None
        if delivery.qos != 1:
            inflight.add(delivery)
            raise ProtocolViolation("PUBACK for a QoS 2 message")
        self._settle(delivery.serial, delivery.offset)
        return delivery

    def receive(self, packet_id: int, *, failed: bool) -> int:
        """PUBREC. Returns ACK_UNKNOWN, ACK_SETTLED (``failed``) or ACK_RELEASE."""
        delivery = self.inflight.get(packet_id)
        if delivery is None:
            return ACK_UNKNOWN
        if delivery.qos != 2:
            raise ProtocolViolation("PUBREC for a QoS 1 message")
        if delivery.state == SENT:
            if failed:
                self.inflight.take(packet_id)
                self._settle(delivery.serial, delivery.offset)
                return ACK_SETTLED
            delivery.state = RELEASED
            self.dirty = True
        return ACK_RELEASE

    def complete(self, packet_id: int) -> int:
        """PUBCOMP. Returns ACK_UNKNOWN or ACK_SETTLED."""
        delivery = self.inflight.get(packet_id)
        if delivery is None:
            return ACK_UNKNOWN
        if delivery.qos != 2 or delivery.state != RELEASED:
            raise ProtocolViolation("PUBCOMP without PUBREL")
        self.inflight.take(packet_id)
        self._settle(delivery.serial, delivery.offset)
        return ACK_SETTLED

    def lift(self, offset: int) -> None:
        """Nothing is owed up to ``offset``: move the cursor there if nothing is outstanding."""
        if self.is_idle() and offset > self.acked_offset:
            self.acked_offset = offset
            self.dirty = True

    def settled_offsets(self) -> set[int]:
        """Offsets above ``acked_offset`` of what was settled out of order."""
        return set(self._settled.values())

    def is_idle(self) -> bool:
        """Whether every message that was offered is settled."""
        return self.acked_serial + 1 == self.next_serial

    def oldest(self) -> Delivery | None:
        """The oldest message in flight: what the cursor waits for; None = nothing is."""
        inflight = self.inflight
        if not inflight.count:
            return None
        first = inflight.get(self.acked_serial % PACKET_IDS + 1)
        if first is None:
            # Its serial number belongs to no message.
            return min(inflight.values(), key=_serial_of)
        return first

    def oldest_offset(self) -> int:
        """Offset of the oldest message in flight; 0 = nothing is."""
        first = self.oldest()
        return 0 if first is None else first.offset

    def is_held_up(self) -> bool:
        """Whether nothing more can be sent before the oldest message is acknowledged, although the
        window has room: a packet identifier comes again after 65,535 others, and its own is taken.
        """
        if self.inflight.count >= self.window_max or not self.inflight.count:
            return False
        following = self.pending[0].serial if self.pending else self.next_serial
        return following > self.acked_serial + PACKET_IDS

    def has_room(self) -> bool:
        """Whether a message offered now would be sent at once."""
        return not self.pending and self._has_window(self.next_serial)

    def cursor(self) -> Cursor:
        """The durable form; the caller commits it and clears ``dirty``."""
        if not self._settled and not self._old_settled:
            settled: tuple[int, ...] = ()
        else:
            settled = tuple(sorted([*self._settled, *self._old_settled]))
        released = self.inflight.released()
        if released or self._old_released:
            released = sorted([*released, *self._old_released])
        return Cursor(
            self.acked_offset, self.acked_serial, settled, tuple(released), self.sent_serial
        )

    def _wait(self, delivery: Delivery) -> None:
        if not self.pending:
            self.pending = deque()
        self.pending.append(delivery)
        self.pending_bytes += delivery.size

    def _has_window(self, serial: int) -> bool:
        return self.inflight.count < self.window_max and serial <= self.acked_serial + PACKET_IDS

    def _send(self, delivery: Delivery) -> None:
        self.inflight.add(delivery)
        if delivery.serial > self.sent_serial:
            self.sent_serial = delivery.serial

    def _settle(self, serial: int, offset: int) -> None:
        self.dirty = True
        settled = self._settled
        if serial != self.acked_serial + 1:
            settled[serial] = offset
            return
        self.acked_serial = serial
        self.acked_offset = offset
        gaps = self._gaps
        while settled or gaps:
            gap_end = gaps.pop(self.acked_serial + 1, 0) if gaps else 0
            if gap_end:
                self.acked_serial = gap_end
                continue
            following = settled.pop(self.acked_serial + 1, -1)
            if following < 0:
                return
            self.acked_serial += 1
            self.acked_offset = following
