"""``Outbound`` against a naive reference, through any order of events and any number of crashes.

The reference is the list of everything that the session was ever owed, with what became of each
message. It knows neither cursors nor windows of serial numbers: a message keeps the place in the
list, and so its packet identifier, for ever.

A crash rebuilds the session from a cursor that was committed at some time, and offers the same
enumeration again from the cursor's offset, as a resumed session does. A cursor with a PUBREC is
committed before its PUBREL goes out, and a batch is written whole: those are the broker's
promises, so the machine keeps them.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.model import Cursor, Message
from perdure.mqtt.errors import ProtocolViolation
from perdure.session.inflight import RELEASED, SENT, Delivery
from perdure.session.outbound import ACK_RELEASE, ACK_SETTLED, ACK_UNKNOWN, Outbound
from tests.model.machines import MACHINE

IDS = 65_535
LEAPS = st.sampled_from([1, 1, 1, 2, 7, IDS - 1, IDS, IDS + 1, 2 * IDS, 3 * IDS])
"""How far a serial number is from the one before, where another broker gave the identifiers."""
ROW = 5
"""So many messages that follow each other have offsets in a row: they are of one commit."""


def offset_of(serial: int) -> int:
    """Offset of a message."""
    return serial + serial // ROW * 10


class Owed:
    """One message of the reference."""

    def __init__(self, serial: int, qos: int, *, placed: bool = False) -> None:
        self.serial = serial
        self.placed = placed
        self.qos = qos
        self.offset = offset_of(serial)
        self.message = Message("t", b"%d" % serial, qos, offset=self.offset)
        self.settled = False
        self.released = False
        self.in_flight = False
        self.waits_for_pubrel = False

    @property
    def packet_id(self) -> int:
        return (self.serial - 1) % IDS + 1


class OutboundMachine(RuleBasedStateMachine):
    """Drives one session through connections and crashes."""

    @initialize(
        near=st.integers(0, 3),
        back=st.integers(0, 40),
        window=st.integers(1, 12),
        catch_up=st.integers(0, 30),
        taken_over=st.lists(st.tuples(LEAPS, st.booleans()), max_size=6),
    )
    def begin(
        self,
        near: int,
        back: int,
        window: int,
        catch_up: int,
        taken_over: list[tuple[int, bool]],
    ) -> None:
        """Start just before identifiers wrap, or at the beginning, and maybe with what another
        broker has left: identifiers of its own, with gaps and repeats, PUBREL among them."""
        start = max(0, near * IDS - back)
        self.start = start
        self.owed: list[Owed] = []
        for leap, released in taken_over:
            owed = Owed(self.last_serial() + leap, 2, placed=True)
            owed.released = released
            self.owed.append(owed)
        self.commit_reference()
        halves = tuple(owed.serial for owed in self.owed if owed.released)
        self.committed = Cursor(offset_of(start), start, (), halves, start)
        self.crash(window=window, catch_up=catch_up, expires=False, lowered=False)

    # What the reference says.

    def last_serial(self) -> int:
        return self.owed[-1].serial if self.owed else self.start

    def by_serial(self, serial: int) -> Owed:
        return next(owed for owed in self.owed if owed.serial == serial)

    def by_id(self, packet_id: int) -> Owed | None:
        """The message in flight with an identifier; the span makes it unique."""
        found = [owed for owed in self.owed if owed.in_flight and owed.packet_id == packet_id]
        assert len(found) <= 1
        return found[0] if found else None

    def went_out(self, delivery: Delivery, *, resumed: bool = False) -> None:
        """Check something that the session gives out to be sent."""
        owed = self.by_serial(delivery.serial)
        assert delivery.message is owed.message
        assert delivery.packet_id == owed.packet_id
        assert delivery.offset == owed.offset
        assert not owed.settled
        assert self.by_id(owed.packet_id) is None
        if delivery.state == RELEASED:
            assert owed.released
            assert resumed or owed.waits_for_pubrel
            owed.waits_for_pubrel = False
            assert delivery.qos == 2
        else:
            assert not owed.released
            assert delivery.qos == owed.qos
            # What was sent after the last commit is the business of ``maybe_sent_offset``.
            assert delivery.dup == (owed.serial <= self.resumed_sent)
        owed.in_flight = True

    # Rules.

    @rule(qos=st.sampled_from([1, 2]), count=st.integers(1, 4), leap=LEAPS)
    def offer(self, qos: int, count: int, leap: int) -> None:
        for number in range(count):
            placed = leap > 1 and not number
            owed = Owed(self.last_serial() + (leap if placed else 1), qos, placed=placed)
            if placed:
                self.outbound.pass_to(owed.serial)
            had_room = self.outbound.has_room()
            self.owed.append(owed)
            delivery = self.outbound.offer(owed.message, qos, False, (), owed.offset)
            assert (delivery is not None) == had_room
            if delivery is not None:
                self.went_out(delivery)

    @rule(count=st.integers(1, 20), catches_up=st.booleans())
    def offer_run(self, count: int, catches_up: bool) -> None:
        first = Owed(self.last_serial() + 1, 1)
        inflight = self.outbound.inflight
        before, runs = inflight.count, len(inflight.runs.runs())
        room = self.outbound.room_for_run(first.offset, catches_up=catches_up)
        if room <= 0:
            return
        if before + room > self.window:
            assert catches_up
            assert before + room <= self.catch_up
            assert runs + room <= self.window, "each may be a run of its own"
        else:
            assert self.outbound.has_room()
        assert self.outbound.next_packet_id() == first.packet_id
        run = [Owed(first.serial + number, 1) for number in range(min(count, room))]
        self.outbound.offer_run([owed.message for owed in run], (7,))
        for owed in run:
            assert self.by_id(owed.packet_id) is None
            assert owed.serial > self.resumed_sent
            delivery = self.outbound.inflight.get(owed.packet_id)
            assert delivery is not None
            assert (delivery.serial, delivery.offset) == (owed.serial, owed.offset)
            assert (delivery.qos, delivery.state, delivery.dup) == (1, SENT, False)
            assert delivery.message is None
            assert delivery.identifiers == (7,)
            self.owed.append(owed)
            owed.in_flight = True

    @rule(leap=LEAPS)
    def skip(self, leap: int) -> None:
        owed = Owed(self.last_serial() + leap, 1, placed=leap > 1)
        self.outbound.pass_to(owed.serial)
        owed.settled = True
        self.owed.append(owed)
        self.outbound.skip(owed.offset)

    @rule(drop=st.booleans())
    def pump(self, drop: bool) -> None:
        delivery = self.outbound.next_to_send()
        if delivery is None:
            return
        self.went_out(delivery)
        if drop and delivery.state == SENT:
            owed = self.by_serial(delivery.serial)
            self.outbound.settle_unsent(delivery)
            owed.settled = True
            owed.in_flight = False

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        packet_id = self.pick(data)
        owed = self.by_id(packet_id)
        if owed is None:
            assert self.outbound.acknowledge(packet_id) is None
        elif owed.qos == 2:
            with pytest.raises(ProtocolViolation):
                self.outbound.acknowledge(packet_id)
        else:
            delivery = self.outbound.acknowledge(packet_id)
            assert delivery is not None
            assert delivery.serial == owed.serial
            owed.settled = True
            owed.in_flight = False

    @rule(data=st.data(), failed=st.booleans())
    def receive(self, data: st.DataObject, failed: bool) -> None:
        packet_id = self.pick(data)
        owed = self.by_id(packet_id)
        if owed is None:
            assert self.outbound.receive(packet_id, failed=failed) == ACK_UNKNOWN
        elif owed.qos == 1:
            with pytest.raises(ProtocolViolation):
                self.outbound.receive(packet_id, failed=failed)
        elif failed and not owed.released:
            assert self.outbound.receive(packet_id, failed=True) == ACK_SETTLED
            owed.settled = True
            owed.in_flight = False
        else:
            assert self.outbound.receive(packet_id, failed=failed) == ACK_RELEASE
            owed.released = True
            self.committed = self.outbound.cursor()  # before PUBREL goes out
            self.commit_reference()

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        packet_id = self.pick(data)
        owed = self.by_id(packet_id)
        if owed is None:
            assert self.outbound.complete(packet_id) == ACK_UNKNOWN
        elif not owed.released:
            with pytest.raises(ProtocolViolation):
                self.outbound.complete(packet_id)
        else:
            assert self.outbound.complete(packet_id) == ACK_SETTLED
            owed.settled = True
            owed.in_flight = False

    @rule()
    def commit(self) -> None:
        self.committed = self.outbound.cursor()
        self.commit_reference()

    @rule(
        window=st.integers(1, 12),
        catch_up=st.integers(0, 30),
        expires=st.booleans(),
        lowered=st.booleans(),
    )
    def crash(self, window: int, catch_up: int, expires: bool, lowered: bool) -> None:
        """The cursor that was committed last is all that is left; everything is offered again."""
        cursor = self.committed
        self.restore_reference()
        for owed in self.owed:
            owed.in_flight = owed.waits_for_pubrel = False
        self.window = window
        self.catch_up = catch_up
        self.outbound = Outbound(cursor, window_max=window, catch_up_max=catch_up)
        self.resumed_sent = cursor.sent
        for owed in self.owed:
            if owed.serial <= cursor.serial:
                assert owed.offset <= cursor.offset
                continue
            assert owed.offset > cursor.offset
            if owed.placed:
                self.outbound.pass_to(owed.serial)
            serial = self.outbound.next_serial
            assert serial == owed.serial
            assert self.outbound.was_settled(serial) == (serial in cursor.settled)
            # An exchange that was completed is settled, and no longer half done.
            half_done = owed.released and not owed.settled
            assert self.outbound.is_half_done(serial) == half_done
            if owed.settled and serial > cursor.sent and expires:
                # Settled without being sent: expired then, expired now.
                self.outbound.skip(owed.offset)
                continue
            if owed.settled and serial not in cursor.settled:
                raise AssertionError(f"{serial} is settled and its cursor does not say so")
            qos = 1 if lowered and owed.released else owed.qos
            delivery = self.outbound.offer(owed.message, qos, False, (), owed.offset)
            if owed.settled:
                assert delivery is None
            elif owed.released and delivery is None:
                # Another message with its identifier comes first.
                assert serial > self.outbound.acked_serial + IDS
                owed.waits_for_pubrel = True
            elif owed.released:
                assert delivery is not None
                assert delivery.state == RELEASED
            if delivery is not None:
                self.went_out(delivery, resumed=True)

    @precondition(lambda self: self.outbound.is_idle())
    @rule()
    def lift(self) -> None:
        """Offsets between two messages belong to others; the next message is beyond."""
        before = self.outbound.cursor()
        self.outbound.lift(before.offset)
        assert self.outbound.cursor() == before

    # Helpers.

    def pick(self, data: st.DataObject) -> int:
        """Mostly something in flight."""
        in_flight = [owed.packet_id for owed in self.owed if owed.in_flight]
        choices = st.integers(1, IDS)
        if in_flight:
            choices = st.sampled_from(in_flight[:40]) | choices
        return data.draw(choices)

    def commit_reference(self) -> None:
        self.kept = [(owed.settled, owed.released) for owed in self.owed]

    def restore_reference(self) -> None:
        """What a crash leaves: what happened since the commit is forgotten, the messages not."""
        for owed, (settled, released) in zip(self.owed, self.kept, strict=False):
            owed.settled = settled
            owed.released = released
        for owed in self.owed[len(self.kept) :]:
            owed.settled = False
            owed.released = False

    # Invariants.

    @invariant()
    def in_flight_is_what_was_sent(self) -> None:
        if not hasattr(self, "outbound"):
            return
        outbound = self.outbound
        expected = {owed.packet_id: owed for owed in self.owed if owed.in_flight}
        inflight = outbound.inflight
        assert inflight.count == len(expected)
        assert {delivery.packet_id for delivery in inflight.values()} == set(expected)
        for packet_id, owed in expected.items():
            delivery = inflight.get(packet_id)
            assert delivery is not None
            assert delivery.serial == owed.serial
            assert delivery.state == (RELEASED if owed.released else SENT)

    @invariant()
    def window_and_span_hold(self) -> None:
        if not hasattr(self, "outbound"):
            return
        outbound = self.outbound
        sent = [d.serial for d in outbound.inflight.values() if d.state == SENT]
        assert len(sent) <= max(self.window, self.catch_up)
        serials = [d.serial for d in outbound.inflight.values()]
        if serials:
            assert max(serials) - outbound.acked_serial <= IDS

    @invariant()
    def cursor_says_what_is_settled(self) -> None:
        if not hasattr(self, "outbound"):
            return
        cursor = self.outbound.cursor()
        behind = [owed for owed in self.owed if owed.serial <= cursor.serial]
        assert all(owed.settled for owed in behind)
        beyond = self.owed[len(behind) :]
        assert cursor.settled == tuple(owed.serial for owed in beyond if owed.settled)
        assert cursor.released == tuple(
            owed.serial for owed in beyond if owed.released and not owed.settled
        )
        assert cursor.offset == (behind[-1].offset if behind else offset_of(self.start))
        assert self.outbound.is_idle() == (not any(not owed.settled for owed in self.owed))
        assert self.outbound.pending_bytes == sum(d.size for d in self.outbound.pending)


@pytest.mark.trap(1)
@pytest.mark.trap(6)
@pytest.mark.trap(7)
@pytest.mark.trap(8)
@pytest.mark.trap(19)
class TestOutbound(
    OutboundMachine.TestCase  # type: ignore[name-defined, misc]
):
    """Traps 1, 6, 7, 8 and 19, in any order of events."""

    settings = MACHINE
