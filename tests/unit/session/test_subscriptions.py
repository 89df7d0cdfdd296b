"""What a session wants of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model import BackfillProgress, DeliveryOptions, Message, Subscription
from perdure.session.subscriptions import SessionSubscriptions
from perdure.topic.any_filter import FEW


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


def test_a_fed_subscription_is_not_part_of_the_order() -> None:
    backfilled = Subscription("a/b", qos=1, backfill=BackfillProgress(False, "", 0, 0))
    assert list(SessionSubscriptions("c", [backfilled]).filters(0)) == []


@pytest.mark.parametrize("fillers", [0, FEW])
def test_both_ways_of_matching_agree(fillers: int) -> None:
    subs = [
        Subscription("a/+", qos=1, identifier=1, since_offset=2, until_offset=8),
        Subscription("a/+", qos=2, identifier=2, since_offset=8),
        Subscription("#", qos=1, identifier=3),
        Subscription("a/b", group="g", qos=2, identifier=4),
    ]
    subs += [Subscription(f"other/{number}", qos=1) for number in range(fillers)]
    interest = SessionSubscriptions("c", subs)
    assert _values(interest.options(_message(offset=8))) == (1, False, (1, 3))
    assert _values(interest.options(_message(offset=9))) == (2, False, (2, 3))
    assert _values(interest.options(_message(offset=1))) == (1, False, (3,))
    assert interest.options(_message("$SYS/x")) is None


@pytest.mark.trap(28)
def test_a_leading_wildcard_does_not_see_dollar_topics() -> None:
    """Trap 28: the durable path keeps to it too."""
    many = [Subscription(f"other/{number}", qos=1) for number in range(FEW)]
    for subs in ([], many):
        interest = SessionSubscriptions(
            "c", [Subscription("#", qos=1), Subscription("+/x", qos=1), *subs]
        )
        assert interest.options(_message("$SYS/x")) is None


def test_filters_to_read() -> None:
    subs = [
        Subscription("a", qos=1),
        Subscription("a", qos=2, since_offset=3),
        Subscription("b", qos=0),
        Subscription("c", qos=1, until_offset=7),
        Subscription("d", group="g", qos=1),
    ]
    assert list(SessionSubscriptions("c", subs).filters(6)) == ["a", "c"]
    assert list(SessionSubscriptions("c", subs).filters(7)) == ["a"]


_SUBS = st.builds(
    Subscription,
    st.sampled_from(["a", "+", "#"]),
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.integers(0, 2),
    since_offset=st.integers(0, 9),
    until_offset=st.integers(0, 9),
)
_MESSAGES = st.builds(
    Message,
    st.sampled_from(["a", "b"]),
    st.just(b""),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    publisher=st.sampled_from(["c", "pub"]),
    offset=st.integers(1, 10),
)


@given(st.lists(_SUBS, max_size=4), st.lists(_MESSAGES, max_size=30), st.booleans())
def test_an_answer_does_not_depend_on_those_before(
    subs: list[Subscription], messages: list[Message], many: bool
) -> None:
    if many:
        subs += [Subscription(f"other/{number}", qos=1) for number in range(FEW)]
    asked = SessionSubscriptions("c", subs)
    for message in messages:
        assert _values(asked.options(message)) == _values(
            SessionSubscriptions("c", subs).options(message)
        )
