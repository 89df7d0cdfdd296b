"""What subscriptions make of one message."""

from __future__ import annotations

import pytest

from perdure.model import (
    BackfillProgress,
    DeliveryOptions,
    Message,
    Subscription,
    combine,
    holds,
    holds_within,
)


def _message(topic: str = "a/b", **changes: int) -> Message:
    return Message(
        topic,
        b"",
        changes.get("qos", 2),
        bool(changes.get("retain", 0)),
        "pub",
        offset=changes.get("offset", 10),
    )


def _values(wanted: DeliveryOptions | None) -> tuple[int, bool, tuple[int, ...]] | None:
    return None if wanted is None else (wanted.qos, wanted.retain, wanted.identifiers)


def test_nothing_for_no_subscription() -> None:
    assert combine([], _message(), "c") is None


@pytest.mark.spec("MQTT-3.3.4-2")
@pytest.mark.spec("MQTT-3.3.4-3")
def test_overlapping_subscriptions_make_one_copy() -> None:
    subs = [
        Subscription("a/b", qos=0, identifier=3),
        Subscription("a/+", qos=2),
        Subscription("#", qos=1, identifier=7),
    ]
    assert _values(combine(subs, _message(qos=1), "c")) == (1, False, (3, 7))
    assert _values(combine(subs, _message(qos=2), "c")) == (2, False, (3, 7))
    assert _values(combine(subs, _message(qos=0), "c")) == (0, False, (3, 7))


def test_retain_is_kept_where_a_subscription_says_so() -> None:
    plain = Subscription("a/b", qos=1)
    kept = Subscription("a/+", qos=1, retain_as_published=True)
    assert _values(combine([plain, kept], _message(retain=1), "c")) == (1, True, ())
    assert _values(combine([plain, kept], _message(), "c")) == (1, False, ())
    assert _values(combine([plain], _message(retain=1), "c")) == (1, False, ())


@pytest.mark.spec("MQTT-3.8.3-3")
def test_no_local_hides_the_clients_own_messages() -> None:
    own = Subscription("a/b", qos=1, no_local=True, identifier=5)
    other = Subscription("#", qos=0, identifier=6)
    assert combine([own], _message(), "pub") is None
    assert _values(combine([own], _message(), "c")) == (1, False, (5,))
    assert _values(combine([own, other], _message(), "pub")) == (0, False, (6,))


@pytest.mark.trap(29)
@pytest.mark.parametrize(
    ("since", "until", "offset", "held"),
    [(5, 0, 5, False), (5, 0, 6, True), (5, 8, 8, True), (5, 8, 9, False)],
)
def test_a_subscription_holds_between_its_offsets(
    since: int, until: int, offset: int, held: bool
) -> None:
    """Trap 29: what was subscribed when decides, not what is subscribed now."""
    assert holds(Subscription("a", since_offset=since, until_offset=until), offset) is held


def test_a_subscription_that_is_fed_holds_nowhere() -> None:
    assert not holds(Subscription("a", qos=1, backfill=BackfillProgress(False, "", 0, 0)), 10)


@pytest.mark.parametrize(
    ("sub", "after", "until", "held"),
    [
        (Subscription("a", qos=1), 5, 6, True),
        (Subscription("a", qos=1), 6, 6, False),
        (Subscription("a", qos=0), 5, 6, False),
        (Subscription("a", qos=1, since_offset=6), 5, 6, False),
        (Subscription("a", qos=1, since_offset=5), 0, 6, True),
        (Subscription("a", qos=1, until_offset=5), 5, 9, False),
        (Subscription("a", qos=1, until_offset=6), 5, 9, True),
        (
            Subscription("a", qos=1, since_offset=9, backfill=BackfillProgress(True, "", 9, 4)),
            0,
            5,
            True,
        ),
        (Subscription("a", qos=1, backfill=BackfillProgress(True, "", 9, 5)), 0, 5, False),
    ],
)
def test_a_subscription_gives_messages_of_a_span(
    sub: Subscription, after: int, until: int, held: bool
) -> None:
    assert holds_within(sub, after=after, until=until) is held
