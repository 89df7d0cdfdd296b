"""From when a distance counts, and what ends it."""

from __future__ import annotations

import random

import pytest

from perdure.broker.commit.spacing import CommitSpacing
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler

INTERVAL_US = 5_000


class Desk:
    """A spacing alone, at a time when the first distance is over."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        scheduler = VirtualScheduler(self.loop, random.Random(1), blocking_us=(1, 1))
        self.due_at: list[int] = []
        self.spacing = CommitSpacing(scheduler, self.clock, INTERVAL_US, self._due)
        self.loop.run_for(2 * INTERVAL_US)
        self.spacing.written(0, 0, self.now_us)
        self.spacing.pacer.spaced = True

    @property
    def now_us(self) -> int:
        return self.clock.monotonic_us()

    def _due(self) -> None:
        self.due_at.append(self.now_us)


@pytest.mark.parametrize(("late_us", "from_us"), [(0, 0), (2_500, 0), (2_501, 2_501)])
def test_a_beat_is_kept_unless_a_turn_takes_too_long(late_us: int, from_us: int) -> None:
    desk = Desk()
    beat_us = desk.spacing.ends_us
    desk.loop.run_for(beat_us + late_us - desk.now_us)
    desk.spacing.written(1, 0, desk.now_us)
    assert desk.spacing.ends_us == beat_us + from_us + INTERVAL_US


def test_the_earliest_time_wins() -> None:
    desk = Desk()
    begun_us = desk.now_us
    for delay_us in (20_000, 8_000, 9_000):
        desk.spacing.wake_at(begun_us + delay_us, begun_us)
    desk.loop.run_for(7_999)
    assert desk.due_at == []
    desk.loop.run_for(50_000)
    assert len(desk.due_at) == 1
    assert desk.spacing.is_due


def test_a_delay_that_ends_in_the_distance_is_not_due() -> None:
    desk = Desk()
    desk.loop.run_for(1_000)
    desk.spacing.over()
    assert len(desk.due_at) == 1
    assert not desk.spacing.is_due


def test_nothing_is_waited_for_where_nothing_gathers() -> None:
    desk = Desk()
    assert not desk.spacing.linger(0, gathering=False, still=False, over=desk._due)
    desk.loop.run_for(10 * INTERVAL_US)
    assert desk.due_at == []
    desk.spacing.written(1, 0, desk.now_us)
    desk.spacing.pacer.spaced = True
    ends_us = desk.spacing.ends_us
    assert not desk.spacing.linger(ends_us, gathering=True, still=False, over=desk._due)
    desk.loop.run_for(10 * INTERVAL_US)
    assert len(desk.due_at) == 1
    assert desk.due_at[0] >= ends_us


def test_what_comes_by_itself_needs_no_timer() -> None:
    desk = Desk()
    assert not desk.spacing.linger(-1, gathering=True, still=False, over=desk._due)
    desk.loop.run_for(10 * INTERVAL_US)
    assert desk.due_at == []


def test_the_loop_stands_still_for_a_distance_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.spacing.pacer.lingers = True
    lingered: list[int] = []

    def linger(_scheduler: object, delay_us: int, _callback: object) -> bool:
        lingered.append(delay_us)
        return True

    monkeypatch.setattr(VirtualScheduler, "linger", linger)
    for due_us in (-1, desk.now_us + 100 * INTERVAL_US, desk.now_us + 3_000):
        assert desk.spacing.linger(due_us, gathering=True, still=True, over=desk._due)
    assert lingered == [INTERVAL_US, INTERVAL_US, 3_000]
