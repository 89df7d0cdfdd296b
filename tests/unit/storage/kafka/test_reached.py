"""A log that has lost its tail is told from a Kafka broker that stood still; without Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import LogShorter
from perdure.storage.kafka.reached import Reached
from perdure.storage.ordered.contract import LogRecord


def records(first: int, end: int, life: bytes = b"") -> list[LogRecord]:
    """What a log has in a range; another life of it has other records."""
    return [LogRecord(place, 10 * place, b"%d%b" % (place, life)) for place in range(first, end)]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_whatever_is_doubted_each_record_comes_once(steps: list[tuple[int, bool]]) -> None:
    reached = Reached("t", 7)
    got: list[LogRecord] = []
    at = 7
    for count, is_doubted in steps:
        if is_doubted:
            at = reached.resume_at(0)
        got += reached.take(records(at, at + count))
        at += count
        if count:
            assert reached.position == at
    assert got == records(7, 7 + len(got))


def test_nothing_is_doubted_before_the_first_record() -> None:
    reached = Reached("t", 7)
    assert reached.resume_at(0) == 7
    assert reached.take(records(7, 9)) == records(7, 9)


def test_a_log_that_has_something_else_there_is_another_one() -> None:
    reached = Reached("t", 0)
    reached.take(records(0, 5))
    assert reached.resume_at(0) == 4
    with pytest.raises(LogShorter, match="at 4: Kafka has lost its tail"):
        reached.take(records(4, 9, b"'"))


def test_what_was_trimmed_is_not_asked_for() -> None:
    reached = Reached("t", 0)
    reached.take(records(0, 5))
    assert reached.resume_at(5) == 5
    assert reached.take(records(5, 6)) == records(5, 6)
