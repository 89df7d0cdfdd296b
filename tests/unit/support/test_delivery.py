"""The checker must find every planted fault and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import (
    EXAMPLES_MAX,
    Ledger,
    Receipts,
    Stamp,
    Verdict,
    audit,
    matches,
)

TOPIC = "site/1/temperature"


def published(*levels: int, acknowledged: bool = True) -> Ledger:
    """One message for each QoS level on one topic; sent at 10, 20, ..., acknowledged 5 later."""
    ledger = Ledger()
    for place, qos in enumerate(levels, start=1):
        stamp = ledger.send("p", TOPIC, qos=qos, at_us=place * 10)
        if acknowledged:
            ledger.acknowledge(TOPIC, stamp, at_us=place * 10 + 5)
    return ledger


def received(*arrivals: tuple[int, int], granted: int = 2, since_us: int = 0) -> Receipts:
    """A subscriber that was given these (number, QoS) in this order."""
    receipts = Receipts("s", {"site/#": granted}, since_us=since_us)
    for number, qos in arrivals:
        receipts.take(TOPIC, Stamp("p", number).encode(24), qos=qos)
    return receipts


def breaches(verdict: Verdict) -> dict[str, int]:
    """The counters that are not zero."""
    names = ("lost", "repeated", "out_of_order", "foreign", "wrong_qos", "redelivered")
    return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}


@given(st.lists(st.integers(1, 2), max_size=8))
def test_a_perfect_delivery_has_no_breach(levels: list[int]) -> None:
    verdict = audit(published(*levels), received(*enumerate(levels, start=1)))
    assert breaches(verdict) == {}
    assert (verdict.expected, verdict.received) == (len(levels), len(levels))
    assert verdict.examples == []


@given(st.integers(1, 2), st.integers(1, 6))
def test_a_missing_message_is_lost(qos: int, gap: int) -> None:
    arrivals = [(number, qos) for number in range(1, 7) if number != gap]
    verdict = audit(published(*[qos] * 6), received(*arrivals))
    assert breaches(verdict) == {"lost": 1}
    assert verdict.examples == [f"s: lost: p {TOPIC} number {gap}"]


def test_a_subscriber_that_received_nothing_lost_all() -> None:
    assert breaches(audit(published(1, 2, 1), received())) == {"lost": 3}


def test_what_was_not_acknowledged_may_be_missing_or_come() -> None:
    ledger = published(1, 1, acknowledged=False)
    assert breaches(audit(ledger, received())) == {}
    assert breaches(audit(ledger, received((1, 1), (2, 1)))) == {}


def test_a_qos_0_message_may_be_missing() -> None:
    assert breaches(audit(published(0, 1), received((2, 1)))) == {}


def test_a_qos_0_subscription_promises_nothing_but_order() -> None:
    assert breaches(audit(published(1, 2), received(granted=0))) == {}
    verdict = audit(published(1, 1), received((2, 0), (1, 0), granted=0))
    assert breaches(verdict) == {"out_of_order": 1}


def test_a_qos_2_message_that_comes_twice_is_repeated() -> None:
    assert breaches(audit(published(2, 2), received((1, 2), (2, 2), (1, 2)))) == {"repeated": 1}


@pytest.mark.parametrize(("published_at", "granted"), [(1, 2), (2, 1), (1, 1)])
def test_at_qos_1_a_repeat_is_allowed_and_counted(published_at: int, granted: int) -> None:
    arrivals = [(1, 1), (2, 1), (3, 1), (2, 1), (3, 1), (4, 1)]
    verdict = audit(published(*[published_at] * 4), received(*arrivals, granted=granted))
    assert breaches(verdict) == {"redelivered": 2}
    assert verdict.breaches == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_first_copy_after_a_later_message_is_out_of_order(qos: int) -> None:
    verdict = audit(published(*[qos] * 3), received((1, qos), (3, qos), (2, qos)))
    assert breaches(verdict) == {"out_of_order": 1}


@pytest.mark.parametrize("granted", [1, 2])
def test_order_across_qos_levels_is_promised_only_by_a_strict_broker(granted: int) -> None:
    swapped = received((2, 1), (1, granted), granted=granted)
    assert breaches(audit(published(2, 1), swapped)) == {}
    assert breaches(audit(published(2, 1), swapped, strict_order=True)) == {"out_of_order": 1}


def test_a_message_with_another_qos_than_granted_is_told() -> None:
    assert breaches(audit(published(2), received((1, 1)))) == {"wrong_qos": 1}
    assert breaches(audit(published(2), received((1, 2), granted=1))) == {"wrong_qos": 1}


def test_a_number_that_was_never_sent_is_foreign() -> None:
    assert breaches(audit(published(1), received((1, 1), (2, 1)))) == {"foreign": 1}
    assert breaches(audit(published(1), received((1, 1), (0, 1)))) == {"foreign": 1}


def test_a_topic_that_was_not_asked_for_is_foreign() -> None:
    ledger = Ledger()
    ledger.send("p", "other", qos=1, at_us=1)
    receipts = received()
    receipts.take("other", Stamp("p", 1).encode(), qos=1)
    assert breaches(audit(ledger, receipts)) == {"foreign": 1}


def test_a_damaged_payload_is_foreign() -> None:
    receipts = received()
    assert receipts.take(TOPIC, b"p 1 0 ...x", qos=1) is None
    assert receipts.take(TOPIC, b"\xff", qos=1) is None
    assert breaches(audit(published(), receipts)) == {"foreign": 2}


def test_a_replay_owes_what_was_sent_since_and_nothing_older() -> None:
    # Sent at 10, 20, 30 and acknowledged at 15, 25, 35: the second may come or not, since the
    # broker took it at some moment between 20 and 25.
    ledger = published(1, 1, 1)
    assert breaches(audit(ledger, received((3, 1), since_us=22))) == {}
    assert breaches(audit(ledger, received((2, 1), (3, 1), since_us=22))) == {}
    assert breaches(audit(ledger, received((2, 1), since_us=22))) == {"lost": 1}
    assert breaches(audit(ledger, received((1, 1), (3, 1), since_us=22))) == {"foreign": 1}


def test_who_asks_by_content_is_owed_that_and_nothing_else() -> None:
    receipts = Receipts("s", {"site/#": 2}, wants=lambda publisher, number: number % 2 == 1)
    for number in (1, 2):
        receipts.take(TOPIC, Stamp("p", number).encode(24), qos=1)
    assert breaches(audit(published(1, 1, 1), receipts)) == {"foreign": 1, "lost": 1}
    again = receipts.anew()
    for number in (1, 3):
        again.take(TOPIC, Stamp("p", number).encode(24), qos=1)
    assert breaches(audit(published(1, 1, 1), again)) == {}


def test_the_examples_are_bounded() -> None:
    verdict = audit(published(*[1] * 50), received())
    assert verdict.lost == 50
    assert len(verdict.examples) == EXAMPLES_MAX


def test_an_acknowledgement_counts_once() -> None:
    ledger = Ledger()
    stamp = ledger.send("p", TOPIC, qos=1, at_us=1)
    ledger.acknowledge(TOPIC, stamp, at_us=2)
    ledger.acknowledge(TOPIC, stamp, at_us=9)
    assert (ledger.sent_count, ledger.acknowledged_count) == (1, 1)
    assert ledger.flows["p", TOPIC].acknowledged_at_us == [2]


@given(st.integers(1, 10**9), st.integers(0, 9), st.integers(0, 64))
def test_a_stamp_survives_its_payload(number: int, attempt: int, size: int) -> None:
    stamp = Stamp("publisher-1", number, attempt)
    payload = stamp.encode(size)
    assert len(payload) >= size
    assert Stamp.decode(payload) == stamp


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("+", "a", True),
        ("+", "a/b", False),
        ("a/+/c", "a/b/c", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "$SYS/a", False),
        ("+/a", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
    ],
)
def test_topic_matching(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


def test_who_begins_between_two_copies_sees_the_second_one_behind_a_later_message() -> None:
    """All of it was unacknowledged for a while: 1 was written, then the moment, 2, 1, 2."""
    ledger = published(1, 1, 1, acknowledged=False)
    arrivals = ((2, 1), (1, 1), (2, 1), (3, 1))
    assert breaches(audit(ledger, received(*arrivals, since_us=15))) == {"redelivered": 1}
    assert breaches(audit(ledger, received(*arrivals, since_us=5))) == {
        "out_of_order": 1,
        "redelivered": 1,
    }, "sent behind that moment, its first copy is"
