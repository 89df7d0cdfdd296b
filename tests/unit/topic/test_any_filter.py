"""Any of many filters: a few are tried one by one, more by an index, and both agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.topic.any_filter import FEW, AnyFilter
from perdure.topic.matching import matches
from perdure.topic.shapes import FilterIndex

LEVELS = st.lists(st.sampled_from(["", "a", "b", "$x"]), min_size=1, max_size=4)
FILTERS = st.builds(
    lambda levels, rest: "/".join(levels) + rest,
    st.lists(st.sampled_from(["", "a", "b", "$x", "+"]), min_size=1, max_size=4),
    st.sampled_from(["", "/#"]),
)


@given(st.lists(FILTERS, max_size=3 * FEW), st.lists(LEVELS, min_size=1))
def test_any_of_them(filters: list[str], topics: list[list[str]]) -> None:
    wanted = AnyFilter(filters)
    for levels in topics:
        if levels == [""]:
            continue  # no topic
        topic = "/".join(levels)
        assert wanted.matches(topic) is any(matches(each, topic) for each in filters)


def test_an_index_that_is_there_is_used() -> None:
    index: FilterIndex[int] = FilterIndex()
    index.put("a/+", 1)
    index.put("b", 2)
    wanted = AnyFilter(["a/+"], index)
    assert wanted.matches("a/1")
    assert wanted.matches("b"), "it may say yes for others"
    assert not wanted.matches("c")


def test_a_filter_too_long_to_be_kept_is_tried_as_well() -> None:
    long = "a/" * 300
    assert AnyFilter([f"{long}+"]).matches(f"{long}b")
    assert not AnyFilter([f"{long}+"]).matches("b")
