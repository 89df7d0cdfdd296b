"""Unit tests of matching one filter: examples of the specification, and a reference by recursion.

Small alphabets with empty levels and ``$`` make every rule meet every other rule often.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.topic.matching import compile_filter, covers, intersects, matches

LEVELS = ["", "a", "b", "$", "$a", "."]


def topics() -> st.SearchStrategy[str]:
    return (
        st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4)
        .map("/".join)
        .filter(lambda topic: topic != "")
    )


def filters() -> st.SearchStrategy[str]:
    return st.builds(
        lambda levels, tail: "/".join(levels + tail),
        st.lists(st.sampled_from([*LEVELS, "+"]), max_size=4),
        st.sampled_from([[], ["#"]]),
    ).filter(lambda topic_filter: topic_filter != "")


def naive(topic_filter: list[str], topic: list[str], *, is_first: bool = True) -> bool:
    """The rules of section 4.7, one level at a time."""
    if not topic_filter:
        return not topic
    head, *rest = topic_filter
    if is_first and topic[0].startswith("$") and head in ("+", "#"):
        return False
    if head == "#":
        return True
    if not topic:
        return False
    return (head in ("+", topic[0])) and naive(rest, topic[1:], is_first=False)


def all_topics(depth_max: int) -> list[str]:
    found = [[level] for level in LEVELS]
    everything = list(found)
    for _ in range(depth_max - 1):
        found = [[*levels, level] for levels in found for level in ["", "a", "b"]]
        everything += found
    # With the empty topic, which no publisher may use: a pair like `/#` and `+` has only that in
    # common, and it is not worth a rule.
    return ["/".join(levels) for levels in everything]


SMALL_WORLD = all_topics(4)

EXAMPLES = [
    # MQTT 5.0 section 4.7.1
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/tennis/player1/#", "sport/tennis/player10", False),
    ("sport/#", "sport", True),
    ("#", "sport", True),
    ("#", "/", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    # section 4.7.2
    ("#", "$SYS/x", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/x", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("+/#", "$SYS", False),
    # section 4.7.3
    ("ACCOUNTS", "Accounts", False),
    ("a/+", "a/\n", True),
    ("a/#", "a/b\nc/d", True),
    ("a.c", "abc", False),
    ("+/a.c", "x/abc", False),
    ("/#", "/", True),
    ("a/+/#", "a", False),
]


@pytest.mark.spec("MQTT-4.7.2-1")
@pytest.mark.spec("MQTT-4.7.1-2")
@pytest.mark.trap(28)
@pytest.mark.parametrize(("topic_filter", "topic", "expected"), EXAMPLES)
def test_examples(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected
    assert compile_filter(topic_filter).matches(topic) is expected


@given(filters(), topics())
def test_matches_agrees_with_the_rules(topic_filter: str, topic: str) -> None:
    expected = naive(topic_filter.split("/"), topic.split("/"))
    assert matches(topic_filter, topic) is expected
    assert compile_filter(topic_filter).matches(topic) is expected


def test_a_compiled_filter_holds_its_text() -> None:
    assert compile_filter("a/+").filter == "a/+"


@given(st.lists(filters(), min_size=2, max_size=2))
def test_intersects_agrees_with_the_topics_of_a_small_world(pair: list[str]) -> None:
    first, second = pair
    # Five levels are enough: a shortest common topic is no deeper than the longer filter.
    expected = any(matches(first, topic) and matches(second, topic) for topic in SMALL_WORLD)
    levels = [filter_.removesuffix("/#").split("/") for filter_ in pair]
    if max(len(each) for each in levels) <= 4 and not _uses_rare_levels_deep(levels):
        assert intersects(first, second) is expected
    assert intersects(first, second) is intersects(second, first)
    if expected:
        assert intersects(first, second)


def _uses_rare_levels_deep(filters_: list[list[str]]) -> bool:
    return any(level in ("$", "$a", ".") for levels in filters_ for level in levels[1:])


@given(filters(), filters())
def test_covers_agrees_with_the_topics_of_a_small_world(wide: str, narrow: str) -> None:
    escapes = [t for t in SMALL_WORLD if matches(narrow, t) and not matches(wide, t)]
    if covers(wide, narrow):
        assert not escapes
        assert intersects(wide, narrow)
    assert covers(wide, wide)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("#", "a/+/#", True),
        ("#", "$SYS/#", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/+", True),
        ("a/#", "a", True),
        ("a/#", "a/#", True),
        ("a/+/#", "a/#", False),
        ("a/+", "a/#", False),
        ("a/+", "a/b", True),
        ("a/b", "a/+", False),
        ("a/+/c", "a/b/c", True),
        ("a/b/c", "a/b", False),
        ("a", "a/b", False),
        ("+/#", "#", False),
        ("#", "+/#", True),
    ],
)
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a/#", "a", True),
        ("a/b/#", "a", False),
        ("+/b", "a/+", True),
        ("a/+", "a/b/c", False),
        ("a/+", "a/b/#", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("#", "+", True),
        ("a", "b", False),
        ("a/+/+", "a/#", True),
        ("a", "a/b/#", False),
    ],
)
def test_intersects(first: str, second: str, expected: bool) -> None:
    assert intersects(first, second) is expected
    assert intersects(second, first) is expected
