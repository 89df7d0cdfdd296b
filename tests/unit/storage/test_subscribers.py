"""The walk goes where filters are that match, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt
from perdure.storage.subscribers import (
    Subscriber,
    TopicWalk,
    parse_subscriber,
    subscriber_key,
)
from perdure.topic.matching import matches

levels = st.sampled_from(["", "a", "b", "ab", "!", "$x", "\x01", "é", "\U0010ffff"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.tuples(st.lists(levels | st.just("+"), max_size=4), st.booleans())
    .map(lambda parts: "/".join([*parts[0], *(["#"] if parts[1] else [])]))
    .filter(bool)
)


@given(st.sets(filters, max_size=12), topics)
def test_the_walk_finds_what_matches_in_the_order_of_keys(stored: set[str], topic: str) -> None:
    keys = sorted(subscriber_key(each, "c", each) for each in stored)
    walk = TopicWalk(topic)
    found: list[bytes] = []
    while (step := walk.next()) is not None:
        below = [key for key in keys if key.startswith(step.prefix)]
        if step.depth < 0:
            found += below
        elif below:
            walk.enter(step)
    assert found == sorted(found)
    assert {parse_subscriber(key)[0] for key in found} == {
        each for each in stored if matches(each, topic)
    }


def test_work_grows_with_what_matches() -> None:
    keys = [subscriber_key(f"dev/{number}/#", f"c{number}", "") for number in range(1_000)]
    walk = TopicWalk("dev/7/state/x/y/z")
    looked = 0
    while (step := walk.next()) is not None:
        looked += 1
        if step.depth >= 0 and any(key.startswith(step.prefix) for key in keys):
            walk.enter(step)
    assert looked < 20


@given(filters, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_key_comes_back(topic_filter: str, client_id: str) -> None:
    for name in (topic_filter, f"$share/g/{topic_filter}", f"$filter/hot/{topic_filter}"):
        key = subscriber_key(topic_filter, client_id, name)
        assert parse_subscriber(key) == (topic_filter, Subscriber(client_id, name))


@pytest.mark.parametrize("key", [b"a", b"a\xffc", b"a\xffc\xff\xffx", b"\xc3\xffc\xff"])
def test_what_is_no_key(key: bytes) -> None:
    with pytest.raises(StorageCorrupt, match="does not decode"):
        parse_subscriber(key)
