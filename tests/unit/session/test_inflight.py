"""What is in flight is found by its packet identifier, whatever else is in flight."""

from __future__ import annotations

import random

import pytest

from perdure.model import Message
from perdure.session.inflight import Delivery, Inflight
from perdure.session.seqno import PACKET_IDS


def _delivery(serial: int, *, qos: int = 2) -> Delivery:
    return Delivery(Message("t", b"12345"), qos, False, (), serial * 10, serial, "")


def _check(inflight: Inflight, expected: dict[int, Delivery]) -> None:
    assert inflight.count == len(expected)
    assert sorted(d.serial for d in inflight.values()) == sorted(
        d.serial for d in expected.values()
    )
    for packet_id, delivery in expected.items():
        found = inflight.get(packet_id)
        assert found is not None
        if delivery.qos == 2:
            assert found is delivery
        assert (found.serial, found.offset, found.qos) == (
            delivery.serial,
            delivery.offset,
            delivery.qos,
        )


def test_a_delivery_knows_its_size_until_it_was_sent() -> None:
    delivery = _delivery(1)
    assert delivery.size == 5
    delivery.message = None
    with pytest.raises(AssertionError):
        assert delivery.size


def test_two_do_not_share_what_is_empty() -> None:
    one, other = Inflight(), Inflight()
    one.add(_delivery(1))
    assert other.get(1) is None
    assert other.values() == []
    assert other.count == 0


@pytest.mark.parametrize("packet_id", [1, 2, 9, 17, 256, PACKET_IDS])
def test_an_unknown_identifier_is_not_taken_for_one_with_its_place(packet_id: int) -> None:
    inflight = Inflight()
    assert inflight.get(packet_id) is None
    inflight.add(_delivery(packet_id + 16 if packet_id < PACKET_IDS else 15))
    assert inflight.get(packet_id) is None


def test_one_that_stays_is_kept_while_all_others_go_round() -> None:
    """It takes the place of each power of two that is tried, and the table stays small."""
    inflight = Inflight()
    kept = _delivery(1)
    inflight.add(kept)
    for serial in range(2, PACKET_IDS + 1):
        delivery = _delivery(serial)
        inflight.add(delivery)
        assert inflight.get(1) is kept
        assert inflight.get(serial) is delivery
        assert inflight.take(serial) is delivery
        assert inflight.get(serial) is None
    _check(inflight, {1: kept})
    assert len(inflight._places) <= 16


def test_all_identifiers_at_once() -> None:
    inflight = Inflight()
    expected = {}
    for serial in range(1, PACKET_IDS + 1):
        delivery = expected[serial] = _delivery(serial)
        inflight.add(delivery)
    _check(inflight, expected)
    for packet_id in expected:
        inflight.take(packet_id)
    _check(inflight, {})
    assert len(inflight._places) == 1


def test_strays_get_places_when_the_table_grows() -> None:
    """Two hold places far apart; a window of others goes round beside them."""
    inflight = Inflight()
    expected: dict[int, Delivery] = {}
    serials = [1, 4_097, 8_193, 12_289, *range(20_000, 20_100)]
    for serial in serials:
        expected[serial] = _delivery(serial)
        inflight.add(expected[serial])
        _check(inflight, expected)
    assert inflight._strays
    for serial in [4_097, 1, *serials[50:], 12_289, 8_193, *serials[4:50]]:
        assert inflight.take(serial) is expected.pop(serial)
        _check(inflight, expected)
    assert inflight._strays is None


@pytest.mark.parametrize("window", [1, 7, 8, 9, 16, 100])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("qualities", [[1], [2], [1, 1, 1, 2]])
def test_any_order(window: int, seed: int, qualities: list[int]) -> None:
    """Against a dict, through the end of the identifiers."""
    chance = random.Random(seed)
    inflight, expected = Inflight(), dict[int, Delivery]()
    serial = PACKET_IDS - 300
    for _ in range(2_000):
        if len(expected) < window and chance.random() < 0.6:
            delivery = _delivery(serial, qos=chance.choice(qualities))
            serial += 1
            inflight.add(delivery)
            expected[delivery.packet_id] = delivery
        elif expected:
            delivery = expected.pop(chance.choice(list(expected)))
            taken = inflight.take(delivery.packet_id)
            assert taken is not None
            assert (taken.serial, taken.offset) == (delivery.serial, delivery.offset)
            assert inflight.take(delivery.packet_id) is None
        if not serial % 10:
            _check(inflight, expected)
        packet_id = chance.randint(1, PACKET_IDS)
        found = inflight.get(packet_id)
        assert (None if found is None else found.packet_id) == (
            packet_id if packet_id in expected else None
        )


def test_an_identifier_is_in_flight_once() -> None:
    inflight = Inflight()
    inflight.add(_delivery(1))
    with pytest.raises(AssertionError):
        inflight.add(_delivery(1 + PACKET_IDS))


def test_what_may_have_been_sent_before_has_an_object() -> None:
    """It is sent again with DUP, and what was retained with RETAIN."""
    inflight = Inflight()
    again, retained = _delivery(1, qos=1), Delivery(None, 1, True, (), 20, 2, "")
    again.dup = True
    inflight.add(again)
    inflight.add(retained)
    assert inflight.get(1) is again
    assert inflight.get(2) is retained
    assert not inflight.runs.runs()
