"""Conditions narrow without losing a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.limits import OFFSET_MAX
from perdure.pipeline.conditions import Condition, Narrowing, narrow
from perdure.pipeline.options import parse_options
from perdure.topic.matching import matches

NOW = 1_700_000_000_000_000
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], Narrowing()),
        ([("EqualTo", "topic", "a/b")], Narrowing((("a/b",),))),
        ([("EqualNullSafe", "topic", "a")], Narrowing((("a",),))),
        ([("EqualTo", "topic", "a/+")], Narrowing(((),))),
        ([("In", "topic", ["a", "b#", "c"])], Narrowing((("a", "c"),))),
        ([("StringStartsWith", "topic", "a/b")], Narrowing((("a/#",),))),
        ([("StringStartsWith", "topic", "a")], Narrowing()),
        ([("StringStartsWith", "topic", "a/+")], Narrowing()),
        ([("StringEndsWith", "topic", "/t")], Narrowing()),
        ([("EqualTo", "offset", 7)], Narrowing((), 6, 7)),
        ([("In", "offset", [9, 7])], Narrowing((), 6, 9)),
        ([("In", "offset", [])], Narrowing()),
        ([("GreaterThan", "offset", 7), ("LessThan", "offset", 9)], Narrowing((), 7, 8)),
        (
            [("GreaterThanOrEqual", "offset", 7), ("LessThanOrEqual", "offset", 9)],
            Narrowing((), 6, 9),
        ),
        ([("Not", "offset", 7), ("EqualTo", "qos", 1)], Narrowing()),
        ([("EqualTo", "offset", True)], Narrowing()),
        (
            [("GreaterThanOrEqual", "published_at", AT)],
            Narrowing((), NOW - 1, OFFSET_MAX, NOW, None),
        ),
        (
            [("LessThan", "published_at", AT), ("LessThan", "published_at", AT + timedelta(1))],
            Narrowing((), 0, OFFSET_MAX, None, NOW - 1),
        ),
        (
            [("EqualTo", "published_at", AT.astimezone(timezone(timedelta(hours=5))))],
            Narrowing((), NOW - 1, OFFSET_MAX, NOW, NOW),
        ),
    ],
)
def test_conditions(conditions: list[tuple[str, str, object]], expected: Narrowing) -> None:
    assert narrow(Condition(*each) for each in conditions) == expected


@pytest.mark.parametrize("past_us", [0, 1, 999])
def test_what_a_cluster_has_taken_at_a_moment_has_an_offset_of_its_millisecond(
    past_us: int,
) -> None:
    """The time of its log goes in steps: an offset may be less than when its message came."""
    moment = AT + timedelta(microseconds=past_us)
    narrowed = narrow([Condition("GreaterThanOrEqual", "published_at", moment)])
    assert narrowed == Narrowing((), NOW - 1, OFFSET_MAX, NOW + past_us, None)
    text = f"2023-11-14T22:13:20.{past_us:06}Z"
    options = parse_options({"path": "d", "from": text}, NOW)
    assert (options.after_offset, options.published_from) == (NOW - 1, NOW + past_us)


@given(
    prefix=st.text("ab/$", max_size=5),
    topic=st.text("ab/$", min_size=1, max_size=7),
)
def test_a_prefix_never_loses_a_topic(prefix: str, topic: str) -> None:
    narrowed = narrow([Condition("StringStartsWith", "topic", prefix)])
    if topic.startswith(prefix):
        assert all(any(matches(each, topic) for each in one) for one in narrowed.filter_sets)
