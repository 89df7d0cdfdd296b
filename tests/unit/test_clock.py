"""The broker's own time: it runs on, whatever becomes of the wall clock."""

from __future__ import annotations

import pytest

from perdure.clock import (
    LATE_US_MAX,
    PLAUSIBLE_US,
    STEPS_MAX,
    ClockState,
    SteadyClock,
    steady_start_us,
)
from perdure.server.log_clock import WINDOW_US, LogClock
from tests.support.clock import START_US, VirtualClock

YEAR_US = 365 * 86_400_000_000
BOOT_US = 60_000_000
"""A minute after 1970 began: a machine that has no clock of its own."""


@pytest.mark.parametrize("step_us", [-YEAR_US, -3_000_000, 3_000_000, YEAR_US])
def test_it_does_not_move_when_the_wall_clock_is_set(step_us: int) -> None:
    wall = VirtualClock()
    clock = SteadyClock(wall)
    before_us = clock.now_us()
    wall.step_wall_us(step_us)
    wall.advance_us(5)
    assert clock.now_us() == before_us + 5
    assert clock.wall_us() == START_US + step_us + 5
    assert clock.at(wall.monotonic_us()) == clock.now_us()
    assert clock.skew_us == 0
    clock.look()
    assert clock.skew_us == step_us


@pytest.mark.parametrize("late_us", [1, 2_000_000, LATE_US_MAX])
def test_what_it_began_with_may_have_been_late_where_the_source_settles(late_us: int) -> None:
    """The first records of a log were long on their way; the next one was not."""
    machine = VirtualClock()
    source = LogClock(machine)
    source.heard(START_US - late_us)
    clock = SteadyClock(source)
    assert clock.now_us() == START_US - late_us
    machine.advance_us(10)
    source.heard(START_US + 10)
    clock.look()
    assert (clock.now_us(), clock.skew_us) == (START_US + 10, 0)
    # Later on it is the clock of a machine that was set; and so is more, at any time.
    machine.advance_us(WINDOW_US)
    source.heard(START_US + WINDOW_US + 10 + late_us)
    clock.look()
    assert (clock.now_us(), clock.skew_us) == (START_US + WINDOW_US + 10, late_us)


def test_a_source_that_settles_and_is_set_moves_nothing() -> None:
    machine = VirtualClock()
    source = LogClock(machine)
    source.heard(START_US)
    clock = SteadyClock(source)
    source.heard(START_US + LATE_US_MAX + 1)
    clock.look()
    assert (clock.now_us(), clock.skew_us) == (START_US, LATE_US_MAX + 1)


def test_a_wall_time_is_found_again_by_the_offset_that_was_given_then() -> None:
    wall = VirtualClock()
    clock = SteadyClock(wall)
    early_us = wall.now_us()
    wall.step_wall_us(YEAR_US)
    clock.look()
    clock.stepped(100, 0)
    wall.advance_us(7)
    ahead_us = wall.now_us()
    wall.step_wall_us(-YEAR_US)
    clock.look()
    clock.stepped(200, YEAR_US)
    wall.advance_us(7)
    assert clock.steady_at(early_us, 100) == START_US
    assert clock.steady_at(ahead_us, 101) == START_US + 7
    assert clock.steady_at(wall.now_us(), 201) == START_US + 14
    assert clock.steady_at(wall.now_us(), 0) == START_US + 14
    clock.forget(101)
    assert clock.state().earlier == [(200, YEAR_US)]


def test_what_is_remembered_of_steps_is_bounded() -> None:
    clock = SteadyClock(VirtualClock())
    for number in range(3 * STEPS_MAX):
        clock.stepped(number, number)
    assert clock.state().earlier == [
        (number, number) for number in range(2 * STEPS_MAX, 3 * STEPS_MAX)
    ]


DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("wall_us", "kept", "start_us"),
    [
        (START_US, None, START_US),
        # Time off counts.
        (START_US, ClockState(START_US - 50), START_US),
        # A clock that was ahead and is right now, and one that is behind now.
        (START_US, ClockState(START_US + YEAR_US), START_US + YEAR_US),
        (BOOT_US, ClockState(START_US), START_US),
        # Set forward in the last run, whether rightly or not: what was counted down goes on.
        (START_US + 50, ClockState(START_US - 40, 40), START_US + 10),
        (START_US, ClockState(START_US - YEAR_US - 9, YEAR_US), START_US - YEAR_US),
        # Set back in the last run, and right again: that has not brought the future any nearer.
        (START_US, ClockState(START_US - 50, -YEAR_US), START_US),
        # Set between the runs, by a day or by 54 years: known where the machine has run on.
        (START_US, ClockState(START_US - DAY_US, elapsed_us=7), START_US - DAY_US + 7),
        (START_US - DAY_US, ClockState(START_US, elapsed_us=7), START_US + 7),
        (START_US, ClockState(BOOT_US, elapsed_us=7), BOOT_US + 7),
        # Never set at all, then or now.
        (BOOT_US + 9, ClockState(BOOT_US), BOOT_US + 9),
        # It was set during the last run, and between the runs.
        (START_US + 9, ClockState(BOOT_US, START_US - BOOT_US), BOOT_US + 9),
        (START_US, ClockState(BOOT_US), BOOT_US),
    ],
)
def test_where_it_begins(wall_us: int, kept: ClockState | None, start_us: int) -> None:
    assert START_US > PLAUSIBLE_US > BOOT_US
    assert steady_start_us(wall_us, kept) == start_us
    assert SteadyClock(VirtualClock(wall_us), kept).now_us() == start_us
