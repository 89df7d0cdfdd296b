"""The outbound half of a session, case by case; ``tests/model`` has all orders of events."""

from __future__ import annotations

import pytest

from perdure.model import Cursor, Message
from perdure.mqtt.errors import ProtocolViolation
from perdure.session.inflight import RELEASED, SENT, Delivery
from perdure.session.outbound import ACK_RELEASE, ACK_SETTLED, ACK_UNKNOWN, Outbound
from perdure.session.seqno import PACKET_IDS, packet_id_of

MESSAGE = Message("t", b"12345")


def _offer(outbound: Outbound, offset: int, *, qos: int = 1) -> Delivery | None:
    return outbound.offer(MESSAGE, qos, False, (), offset)


def _sent(outbound: Outbound, offset: int, *, qos: int = 1) -> Delivery:
    delivery = _offer(outbound, offset, qos=qos)
    assert delivery is not None
    return delivery


def test_a_delivery_carries_what_was_offered() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    delivery = outbound.offer(MESSAGE, 2, True, (4,), 30, "g/t")
    assert delivery is not None
    assert (delivery.message, delivery.qos, delivery.retain) == (MESSAGE, 2, True)
    assert (delivery.identifiers, delivery.offset, delivery.group_key) == ((4,), 30, "g/t")
    assert (delivery.serial, delivery.packet_id, delivery.state) == (1, 1, SENT)
    assert not delivery.dup


def test_acknowledged_in_order() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    for offset in (10, 20):
        _sent(outbound, offset)
    assert outbound.acknowledge(1) is not None
    assert outbound.cursor() == Cursor(10, 1, (), (), 2)
    assert outbound.acknowledge(2) is not None
    assert outbound.cursor() == Cursor(20, 2, (), (), 2)
    assert outbound.is_idle()


@pytest.mark.trap(19)
def test_acknowledged_in_any_order() -> None:
    """Trap 19: accepted as they come; the cursor stays behind the oldest one outstanding."""
    outbound = Outbound(Cursor(), window_max=5)
    for offset in (10, 20, 30, 40):
        _sent(outbound, offset)
    outbound.acknowledge(3)
    outbound.acknowledge(2)
    assert outbound.cursor() == Cursor(0, 0, (2, 3), (), 4)
    outbound.acknowledge(1)
    assert outbound.cursor() == Cursor(30, 3, (), (), 4)
    outbound.acknowledge(4)
    assert outbound.cursor() == Cursor(40, 4, (), (), 4)


@pytest.mark.trap(19)
def test_an_in_order_acknowledgement_before_settled_ones() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    for offset in (10, 20, 30):
        _sent(outbound, offset)
    outbound.acknowledge(3)
    outbound.acknowledge(1)
    assert outbound.cursor() == Cursor(10, 1, (3,), (), 3)


def test_the_oldest_in_flight() -> None:
    outbound = Outbound(Cursor(70, 65_534), window_max=5)
    assert outbound.oldest_offset() == 0
    for offset in (80, 90):
        _sent(outbound, offset)
    outbound.pass_to(65_539)
    for offset in (100, 110):
        _sent(outbound, offset)
    assert outbound.oldest_offset() == 80
    outbound.acknowledge(65_535)
    assert outbound.oldest_offset() == 90
    outbound.acknowledge(1)
    assert outbound.oldest_offset() == 100
    outbound.acknowledge(4)
    outbound.acknowledge(5)
    assert outbound.oldest_offset() == 0


def test_the_oldest_in_flight_behind_numbers_that_belong_to_no_message() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    first = _sent(outbound, 10)
    outbound.pass_to(3)
    for offset in (20, 30):
        _sent(outbound, offset)
    outbound.settle_unsent(first)
    assert outbound.oldest_offset() == 20


@pytest.mark.trap(6)
def test_a_message_that_is_never_acknowledged_holds_the_session_up() -> None:
    """65,535 identifiers: the one of the first message comes again after 65,534 others."""
    outbound = Outbound(Cursor(), window_max=5)
    assert outbound.oldest() is None
    stuck = _sent(outbound, 1)
    for offset in range(2, PACKET_IDS + 1):
        assert not outbound.is_held_up()
        _sent(outbound, offset)
        outbound.acknowledge(packet_id_of(offset))
    assert outbound.is_held_up()
    assert outbound.inflight.count == 1
    assert _offer(outbound, PACKET_IDS + 1) is None
    oldest = outbound.oldest()
    assert oldest is not None
    assert oldest.serial == stuck.serial
    outbound.acknowledge(stuck.packet_id)
    assert not outbound.is_held_up()
    assert outbound.next_to_send() is not None


def test_a_full_window_is_another_matter() -> None:
    outbound = Outbound(Cursor(), window_max=2)
    for offset in (10, 20, 30):
        _offer(outbound, offset)
    assert not outbound.is_held_up()


def test_identifiers_go_on_when_nothing_is_in_flight() -> None:
    """Trap 6: the counter is not reset because the window is empty for a moment."""
    outbound = Outbound(Cursor(), window_max=5)
    for number in range(1, 6):
        assert _sent(outbound, number * 10).packet_id == number
        outbound.acknowledge(number)
        assert not outbound.inflight.count


@pytest.mark.trap(8)
def test_acknowledgements_of_the_other_qos_are_refused() -> None:
    """Trap 8: PUBACK settles no QoS 2 message, PUBREC and PUBCOMP no QoS 1 message."""
    outbound = Outbound(Cursor(), window_max=5)
    _sent(outbound, 10, qos=1)
    _sent(outbound, 20, qos=2)
    with pytest.raises(ProtocolViolation):
        outbound.acknowledge(2)
    with pytest.raises(ProtocolViolation):
        outbound.receive(1, failed=False)
    with pytest.raises(ProtocolViolation):
        outbound.complete(1)
    with pytest.raises(ProtocolViolation):
        outbound.complete(2)
    assert {delivery.packet_id for delivery in outbound.inflight.values()} == {1, 2}


def test_unknown_identifiers_change_nothing() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    assert outbound.acknowledge(1) is None
    assert outbound.receive(1, failed=False) == ACK_UNKNOWN
    assert outbound.complete(1) == ACK_UNKNOWN
    assert not outbound.dirty


def test_qos2_track() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    delivery = _sent(outbound, 10, qos=2)
    assert outbound.receive(1, failed=False) == ACK_RELEASE
    assert delivery.state == RELEASED
    assert outbound.cursor() == Cursor(0, 0, (), (1,), 1)
    outbound.dirty = False
    assert outbound.receive(1, failed=False) == ACK_RELEASE  # PUBREL is owed again
    assert not outbound.dirty
    assert outbound.complete(1) == ACK_SETTLED
    assert outbound.cursor() == Cursor(10, 1, (), (), 1)


def test_a_failing_pubrec_ends_the_exchange() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    _sent(outbound, 10, qos=2)
    assert outbound.receive(1, failed=True) == ACK_SETTLED
    assert outbound.cursor() == Cursor(10, 1, (), (), 1)


def test_a_failing_pubrec_after_a_good_one_changes_nothing() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    delivery = _sent(outbound, 10, qos=2)
    outbound.receive(1, failed=False)
    assert outbound.receive(1, failed=True) == ACK_RELEASE
    assert delivery.state == RELEASED


def test_the_window_holds_back() -> None:
    outbound = Outbound(Cursor(), window_max=2)
    assert outbound.has_room()
    _sent(outbound, 10)
    _sent(outbound, 20)
    assert not outbound.has_room()
    assert _offer(outbound, 30) is None
    assert _offer(outbound, 40) is None
    assert outbound.pending_bytes == 10
    assert outbound.next_to_send() is None
    outbound.acknowledge(2)
    # Whoever waits goes first, although the window has a place.
    assert not outbound.has_room()
    assert _offer(outbound, 50) is None
    following = outbound.next_to_send()
    assert following is not None
    assert (following.serial, following.dup) == (3, False)
    assert outbound.next_to_send() is None
    assert outbound.pending_bytes == 10
    assert outbound.cursor().sent == 3


def test_nothing_pending_to_send() -> None:
    assert Outbound(Cursor(), window_max=1).next_to_send() is None


@pytest.mark.trap(7)
def test_the_oldest_unacknowledged_message_bounds_the_span() -> None:
    """Trap 7: no second message gets the identifier of one in flight."""
    outbound = Outbound(Cursor(), window_max=65_535)
    first = _sent(outbound, 1)
    for offset in range(2, 65_536):
        _sent(outbound, offset)
        outbound.acknowledge((offset - 1) % 65_535 + 1)
    assert outbound.inflight.count == 1
    assert _offer(outbound, 65_536) is None
    assert outbound.next_to_send() is None
    assert not outbound.has_room()
    settled = outbound.acknowledge(first.packet_id)
    assert settled is not None
    assert settled.serial == first.serial
    following = outbound.next_to_send()
    assert following is not None
    assert (following.serial, following.packet_id) == (65_536, 1)


@pytest.mark.trap(3)
@pytest.mark.trap(17)
def test_after_a_resume_the_same_message_has_the_same_identifier_and_dup() -> None:
    """Traps 3 and 17: redelivery has DUP 1 and its old identifier."""
    outbound = Outbound(Cursor(), window_max=5)
    for offset in (10, 20, 30):
        _sent(outbound, offset)
    outbound.acknowledge(2)
    again = Outbound(outbound.cursor(), window_max=5)
    assert again.was_sent(3)
    assert not again.was_sent(4)
    first = _sent(again, 10)
    assert (first.packet_id, first.dup) == (1, True)
    assert again.was_settled(2)
    assert _offer(again, 20) is None
    assert not again.was_settled(2)
    third = _sent(again, 30)
    assert (third.packet_id, third.dup) == (3, True)
    fourth = _sent(again, 40)
    assert (fourth.packet_id, fourth.dup) == (4, False)
    assert again.cursor() == Cursor(0, 0, (2,), (), 4)


@pytest.mark.trap(12)
def test_after_a_resume_a_released_message_is_a_pubrel() -> None:
    """Trap 12: the exchange goes on with PUBREL, also when the window is full."""
    outbound = Outbound(Cursor(), window_max=3)
    for offset in (10, 20, 30):
        _sent(outbound, offset, qos=2)
    outbound.receive(3, failed=False)
    again = Outbound(outbound.cursor(), window_max=1)
    assert again.is_half_done(3)
    assert again.was_sent(3)
    assert not again.is_half_done(2)
    assert _sent(again, 10, qos=2).state == SENT
    assert _offer(again, 20, qos=2) is None
    assert again.cursor().released == (3,)
    # The subscription may have been lowered since: the exchange is what it was.
    released = _sent(again, 30, qos=1)
    assert (released.state, released.qos, released.packet_id) == (RELEASED, 2, 3)
    assert again.complete(3) == ACK_SETTLED
    assert again.cursor() == Cursor(0, 0, (3,), (), 3)


@pytest.mark.trap(13)
def test_a_skipped_message_takes_its_serial_number() -> None:
    """Traps 13 and 23: what has expired blocks nothing, and shifts no identifier."""
    outbound = Outbound(Cursor(), window_max=5)
    outbound.skip(10)
    assert _sent(outbound, 20).packet_id == 2
    outbound.skip(30)
    assert outbound.cursor() == Cursor(10, 1, (3,), (), 2)
    outbound.acknowledge(2)
    assert outbound.cursor() == Cursor(30, 3, (), (), 2)


@pytest.mark.trap(23)
def test_skipping_what_was_settled_or_released_forgets_it() -> None:
    outbound = Outbound(Cursor(5, 1, (3,), (2,), 3), window_max=5)
    outbound.skip(10)
    outbound.skip(20)
    assert outbound.cursor() == Cursor(20, 3, (), (), 3)


def test_settled_without_being_sent() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    delivery = _sent(outbound, 10)
    outbound.settle_unsent(delivery)
    assert not outbound.inflight.count
    assert outbound.cursor() == Cursor(10, 1, (), (), 1)


@pytest.mark.trap(18)
def test_a_lowered_subscription_leaks_no_identifier() -> None:
    """Trap 18: what was offered with QoS 1 settles, whatever is offered after it."""
    outbound = Outbound(Cursor(), window_max=2)
    for number in range(1, 200_000, 997):
        outbound.skip(number)
    assert _sent(outbound, 200_000).packet_id == outbound.next_serial - 1
    assert outbound.inflight.count == 1
    outbound.acknowledge(outbound.next_serial - 1)
    assert outbound.is_idle()
    assert outbound.has_room()


def test_the_cursor_is_lifted_only_when_nothing_is_outstanding() -> None:
    outbound = Outbound(Cursor(5), window_max=5)
    outbound.lift(5)
    assert not outbound.dirty
    outbound.lift(9)
    assert outbound.dirty
    assert outbound.cursor() == Cursor(9)
    _sent(outbound, 10)
    outbound.lift(20)
    assert outbound.cursor().offset == 9


@pytest.mark.trap(3)
def test_after_a_crash_what_may_have_been_sent_has_dup() -> None:
    """The cursor was not written: offsets up to the crash may have gone out, later ones not."""
    outbound = Outbound(Cursor(5, 1, sent=1), window_max=2, maybe_sent_offset=25)
    assert _sent(outbound, 10).dup
    assert _sent(outbound, 20).dup
    assert _offer(outbound, 24) is None
    outbound.acknowledge(2)
    third = outbound.next_to_send()
    assert third is not None
    assert third.dup  # the cursor may be old: how many were out, nobody knows
    assert not _sent(Outbound(Cursor(5, 1, sent=1), window_max=2), 10).dup


def test_after_a_crash_newer_messages_have_no_dup() -> None:
    outbound = Outbound(Cursor(5, 1, sent=1), window_max=5, maybe_sent_offset=15)
    assert _sent(outbound, 10).dup
    assert not _sent(outbound, 20).dup
    assert not _sent(outbound, 30).dup


def test_identifiers_of_another_broker_leave_gaps() -> None:
    """The numbers between are nobody's: the cursor passes them with the message before them."""
    outbound = Outbound(Cursor(5, 6), window_max=5)
    for serial, offset in ((9, 10), (12, 20), (13, 30)):
        outbound.pass_to(serial)
        assert _sent(outbound, offset).packet_id == serial
    outbound.pass_to(4)  # passed long ago
    assert outbound.cursor() == Cursor(5, 8, (), (), 13)
    outbound.acknowledge(12)
    assert outbound.cursor() == Cursor(5, 8, (12,), (), 13)
    outbound.acknowledge(9)
    assert outbound.cursor() == Cursor(20, 12, (), (), 13)
    outbound.acknowledge(13)
    assert outbound.is_idle()
    assert outbound.next_serial == 14


def test_an_identifier_that_was_given_twice_waits_for_the_first() -> None:
    outbound = Outbound(Cursor(), window_max=5)
    outbound.pass_to(7)
    _sent(outbound, 10)
    outbound.pass_to(7 + 65_535)
    assert _offer(outbound, 20) is None
    assert outbound.next_to_send() is None
    outbound.acknowledge(7)
    again = outbound.next_to_send()
    assert again is not None
    assert (again.packet_id, again.offset) == (7, 20)


def test_a_pubrel_with_an_identifier_that_is_in_flight_waits_for_it() -> None:
    """Two exchanges of one identifier would be one to the client, and one of them never end."""
    outbound = Outbound(Cursor(released=(7 + 65_535,)), window_max=5)
    outbound.pass_to(7)
    _sent(outbound, 10)
    outbound.pass_to(7 + 65_535)
    assert _offer(outbound, 20, qos=2) is None
    assert outbound.cursor().released == (7 + 65_535,)
    assert outbound.acknowledge(7) is not None
    pubrel = outbound.next_to_send()
    assert pubrel is not None
    assert (pubrel.packet_id, pubrel.state) == (7, RELEASED)
    assert outbound.cursor().released == (7 + 65_535,)
    assert outbound.complete(7) == ACK_SETTLED
    assert outbound.is_idle()


def test_a_run_waits_for_what_an_earlier_connection_may_have_sent() -> None:
    """Those go out with DUP, one by one."""
    outbound = Outbound(Cursor(5, 1, sent=2), window_max=5, maybe_sent_offset=25)
    assert outbound.room_for_run(10) == 0
    assert _sent(outbound, 10).dup
    assert outbound.room_for_run(25) == 0
    assert _sent(outbound, 25).dup
    assert outbound.room_for_run(26) == 3
    outbound.offer_run([Message("t", b"1", offset=26), Message("t", b"2", offset=27)], ())
    assert outbound.room_for_run(28) == 1
    assert [outbound.acknowledge(packet_id) is not None for packet_id in (2, 3, 4, 5)] == [True] * 4
    assert outbound.cursor() == Cursor(27, 5, (), (), 5)


@pytest.mark.parametrize("what", ["settled", "released", "pending"])
def test_a_run_does_not_pass_what_is_to_be_looked_at(what: str) -> None:
    settled = (3,) if what == "settled" else ()
    released = (3,) if what == "released" else ()
    outbound = Outbound(Cursor(5, 1, settled, released, 1), window_max=1)
    if what == "pending":
        _sent(outbound, 10)
        assert _offer(outbound, 20) is None
    assert outbound.room_for_run(30) == 0


def _run(first: int, count: int, *, apart: int = 1) -> list[Message]:
    return [Message("t", b"x", offset=first + number * apart) for number in range(count)]


def test_who_catches_up_has_more_in_flight_where_it_is_kept_as_runs() -> None:
    outbound = Outbound(Cursor(), window_max=5, catch_up_max=50)
    outbound.offer_run(_run(100, 30), ())
    assert outbound.room_for_run(200, catches_up=True) == 4, "each message may be a run"
    assert outbound.room_for_run(200) == -25
    outbound.offer_run(_run(200, 4, apart=2), ())
    assert outbound.catch_up_left() == 0
    assert not outbound.has_room()
    for packet_id in range(1, 31):
        outbound.acknowledge(packet_id)
    assert outbound.catch_up_left() == 1
    assert outbound.has_room()


def test_no_larger_window_than_was_asked_for() -> None:
    outbound = Outbound(Cursor(), window_max=5, catch_up_max=2)
    assert outbound.catch_up_left() == 5
    for offset in (10, 20, 30, 40, 50):
        _sent(outbound, offset, qos=2)
    assert outbound.catch_up_left() == 0
