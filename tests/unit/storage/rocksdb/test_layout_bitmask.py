"""The arithmetic of layout 2; what it reads is in tests/contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb.layout_bitmask import (
    _split,
    filter_query,
    next_index,
    topic_index,
)
from perdure.topic.matching import matches

LEVELS = ["", "a", "b", "c", "d"]
TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6).map("/".join).filter(bool)
FILTERS = (
    st.tuples(st.lists(st.sampled_from([*LEVELS, "+"]), max_size=6), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0]))
    .filter(bool)
)


@given(FILTERS, TOPICS)
def test_a_topic_that_matches_has_the_value_under_the_mask(topic_filter: str, topic: str) -> None:
    value, mask = filter_query(topic_filter)
    if matches(topic_filter, topic):
        assert topic_index(topic) & mask == value


def test_masks() -> None:
    assert filter_query("a/b/c/d/e") == (topic_index("a/b/c/d/e"), 2**64 - 1)
    assert filter_query("a") == (topic_index("a"), 2**64 - 1)
    assert filter_query("#") == (0, 0)
    assert filter_query("a/#")[1] == 0xFFFF << 48
    assert filter_query("+/a/+")[1] == 0x0000_FFFF_0000_FFFF
    assert filter_query("a/b/c/+/e")[1] == 0xFFFF_FFFF_FFFF_0000
    assert filter_query("a/b/c/d/#")[1] == 0xFFFF_FFFF_FFFF_0000


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_next_index_is_the_lowest_that_fits(index: int, value: int, free: int) -> None:
    mask = 2**64 - 1 - free
    value &= mask
    fitting = [each for each in range(index, 256) if each & mask == value]
    assert next_index(index, value, mask) == (fitting[0] if fitting else None)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_next_index_fits_and_does_not_go_back(index: int, value: int, mask: int) -> None:
    value &= mask
    found = next_index(index, value, mask)
    highest = value | (~mask & (2**64 - 1))
    if found is None:
        assert highest < index
    else:
        assert index <= found <= highest
        assert found & mask == value


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x05abc", b"\x00\x01\xff"])
def test_broken_rows_are_corrupt(value: bytes) -> None:
    with pytest.raises(StorageCorrupt):
        _split(value, 5)
