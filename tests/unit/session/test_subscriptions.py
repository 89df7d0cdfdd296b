"""What a session wants of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model import BackfillProgress, DeliveryOptions, Message, Subscription, combine, holds
from perdure.session.subscriptions import NAIVE_MAX, SessionSubscriptions


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


def test_a_fed_subscription_is_not_part_of_the_order() -> None:
    fed = Subscription("a/b", qos=1, feed=BackfillProgress(False, "", 0, 0))
    assert not holds(fed, 10)
    assert SessionSubscriptions("c", [fed]).filters(0) == []


@pytest.mark.parametrize("fillers", [0, NAIVE_MAX])
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
    many = [Subscription(f"other/{number}", qos=1) for number in range(NAIVE_MAX)]
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
    assert SessionSubscriptions("c", subs).filters(6) == ["a", "c"]
    assert SessionSubscriptions("c", subs).filters(7) == ["a"]


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
        subs += [Subscription(f"other/{number}", qos=1) for number in range(NAIVE_MAX)]
    asked = SessionSubscriptions("c", subs)
    for message in messages:
        assert _values(asked.options(message)) == _values(
            SessionSubscriptions("c", subs).options(message)
        )
