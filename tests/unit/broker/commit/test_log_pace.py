"""From when a batch is late."""

from __future__ import annotations

import pytest

from perdure.broker.commit.log_pace import LATE, LATE_US_MIN, LogPace

MANY = 200


@pytest.mark.parametrize("always_us", [3_000, 6_000, 9_000])
def test_what_a_log_always_takes_is_not_late_for_long(always_us: int) -> None:
    pace = LogPace()
    for _ in range(MANY):
        pace.took(always_us)
    assert always_us < pace.late_us <= max(LATE * always_us, LATE_US_MIN)


@pytest.mark.parametrize("always_us", [10_100, 15_000, 80_000])
def test_where_a_log_always_takes_long_none_is_late(always_us: int) -> None:
    pace = LogPace()
    for _ in range(MANY):
        pace.took(always_us)
    assert pace.late_us == -1


def test_a_fast_log_is_not_late_before_the_least() -> None:
    pace = LogPace()
    for _ in range(MANY):
        pace.took(100)
    assert pace.late_us == LATE_US_MIN


def test_a_stall_does_not_become_usual() -> None:
    pace = LogPace()
    for _ in range(MANY):
        pace.took(4_000)
    late_us = pace.late_us
    pace.took(1_000_000)
    assert pace.late_us <= late_us * 5 // 4


def test_a_log_that_was_slow_is_soon_taken_for_fast_again() -> None:
    pace = LogPace()
    for _ in range(MANY):
        pace.took(40_000)
    assert pace.late_us == -1
    for _ in range(30):
        pace.took(3_000)
    assert 0 < pace.late_us < 10_000
