"""Keys keep the order that reads rely on, and no owner's rows lie among another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt, UsageError
from perdure.storage.retained_walk import retained_key, retained_topic
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import prefix_end

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@given(NAMES, NAMES, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_rows_of_owners_do_not_mix(one: str, other: str, low: int, high: int) -> None:
    prefix = keys.session_inbox(one)
    key = keys.offset(prefix, low)
    assert keys.owner_of(key) == prefix
    assert key.startswith(keys.session_inbox(other)) == (one == other)
    assert (key < keys.offset(prefix, high)) == (low < high)
    assert prefix <= key < prefix_end(prefix)
    rows = keys.session_rows(one)
    for row in (
        keys.cursor(rows),
        keys.awaiting_release(rows, 65_535),
        keys.subscription(rows, high, other),
    ):
        assert keys.owner_of(row) == rows


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), NAMES)))
def test_deadlines_are_in_order(deadlines: list[tuple[int, str]]) -> None:
    ordered = sorted(keys.deadline(*each) for each in deadlines)
    parsed = [keys.parse_deadline(key) for key in ordered]
    assert [each[0] for each in parsed] == sorted(each[0] for each in deadlines)
    assert set(parsed) == set(deadlines)


@given(st.sets(NAMES.filter(bool)))
def test_retained_topics_are_in_level_order(topics: set[str]) -> None:
    ordered = sorted(topics, key=retained_key)
    assert ordered == sorted(
        topics, key=lambda topic: [level.encode() for level in topic.split("/")]
    )
    assert [retained_topic(retained_key(topic)) for topic in ordered] == ordered


def test_a_topic_with_the_separator_is_refused() -> None:
    with pytest.raises(UsageError):
        retained_key("a\0b")
    with pytest.raises(StorageCorrupt):
        retained_topic(b"\xff")
