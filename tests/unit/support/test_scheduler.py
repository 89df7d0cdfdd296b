"""Virtual time: order, gates, tasks, blocking work, death."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.support.clock import START_US, VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")


def _make() -> tuple[VirtualLoop, VirtualScheduler, list[str]]:
    loop = VirtualLoop(VirtualClock())
    return loop, VirtualScheduler(loop, random.Random(1), blocking_us=(100, 100)), []


def test_timers_run_in_order_of_time_and_then_of_asking() -> None:
    loop, scheduler, story = _make()
    scheduler.call_later(20, lambda: story.append("late"))
    scheduler.call_later(10, lambda: story.append("early"))
    scheduler.call_later(10, lambda: story.append("second"))
    scheduler.call_later(15, lambda: story.append("never")).cancel()
    scheduler.call_soon(lambda: story.append("now"))
    loop.run_for(19)
    assert story == ["now", "early", "second"]
    assert loop.clock.monotonic_us() == 19
    loop.run_for(1)
    assert story[-1] == "late"


def test_what_a_callback_asks_for_comes_after_all_that_is_due_with_it() -> None:
    """As a turn ends after every socket that was ready."""
    loop, scheduler, story = _make()
    scheduler.call_later(5, lambda: scheduler.call_soon(lambda: story.append("turn")))
    scheduler.call_later(5, lambda: story.append("socket"))
    loop.run_for(5)
    assert story == ["socket", "turn"]


def test_a_task_waits_at_a_gate() -> None:
    loop, scheduler, story = _make()
    gate = scheduler.gate()

    async def work() -> None:
        story.append("begins")
        await gate
        story.append("goes on")
        await gate
        story.append("ends")

    scheduler.spawn(work(), name="work")
    loop.run_ready()
    assert story == ["begins"]
    gate.open()
    gate.open()
    loop.run_ready()
    assert story == ["begins", "goes on", "ends"]
    assert not scheduler.tasks


def test_a_failure_reaches_whoever_runs_the_loop() -> None:
    loop, scheduler, _ = _make()

    async def work() -> None:
        raise ValueError("wrong")

    scheduler.spawn(work(), name="work")
    with pytest.raises(ValueError, match="wrong"):
        loop.run_ready()


def test_blocking_work_is_done_one_at_a_time() -> None:
    loop, scheduler, story = _make()

    def fail() -> None:
        raise OSError("disk")

    scheduler.run_blocking(lambda: story.append("first"), lambda error: story.append(str(error)))
    scheduler.run_blocking(fail, lambda error: story.append(str(error)))
    loop.run_for(100)
    assert story == ["first", "None"]
    loop.run_for(100)
    assert story == ["first", "None", "disk"]


class Chance(random.Random):
    """Decides whether a rest stands still, and that work has its effect half-way."""

    def __init__(self, *, stands_still: bool) -> None:
        super().__init__(1)
        self._value = 0.9 if stands_still else 0.1

    def random(self) -> float:
        return self._value

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        return seq[len(seq) // 2]


def _rest(*, stands_still: bool) -> tuple[VirtualLoop, VirtualScheduler, list[str]]:
    loop = VirtualLoop(VirtualClock())
    chance = Chance(stands_still=stands_still)
    scheduler = VirtualScheduler(loop, chance, blocking_us=(100, 100))
    story: list[str] = []
    scheduler.call_later(50, lambda: story.append("timer"))
    return loop, scheduler, story


def test_a_loop_may_go_on_while_it_rests() -> None:
    loop, scheduler, story = _rest(stands_still=False)
    assert not scheduler.linger(200, lambda: story.append("over"))
    scheduler.run_blocking(lambda: story.append("work"), lambda _: story.append("done"))
    loop.run_for(200)
    assert sorted(story[:2]) == ["timer", "work"]
    assert story[2:] == ["done", "over"]


def test_a_loop_may_stand_still_while_it_rests() -> None:
    loop, scheduler, story = _rest(stands_still=True)
    assert not scheduler.linger(200, lambda: story.append("over"))
    assert loop.clock.monotonic_us() == 200
    assert story == []
    loop.run_for(0)
    assert story == ["over", "timer"]


def test_blocking_work_ends_a_rest() -> None:
    loop, scheduler, story = _rest(stands_still=True)
    scheduler.run_blocking(lambda: story.append("work"), lambda _: story.append("done"))
    assert scheduler.linger(200, lambda: story.append("over"))
    assert loop.clock.monotonic_us() == 100
    loop.run_for(1_000)
    assert story == ["work", "done", "timer"]


def test_blocking_work_may_have_its_effect_in_a_rest_and_end_after_it() -> None:
    loop, scheduler, story = _rest(stands_still=True)
    scheduler.blocking_us = (1_000, 1_000)
    scheduler.run_blocking(lambda: story.append("work"), lambda _: story.append("done"))
    assert not scheduler.linger(700, lambda: story.append("over"))
    assert story == ["work"]
    loop.run_for(1_000)
    assert story == ["work", "over", "timer", "done"]


def test_a_dead_process_does_nothing_more() -> None:
    loop, scheduler, story = _make()

    async def work() -> None:
        try:
            await scheduler.gate()
        finally:
            story.append("closed")

    scheduler.spawn(work(), name="work")
    scheduler.call_later(10, lambda: story.append("timer"))
    scheduler.run_blocking(lambda: story.append("work"), lambda _: story.append("done"))
    loop.run_for(0)
    story.clear()
    scheduler.kill()
    loop.run_for(1_000)
    assert story == ["closed"]


def test_running_until_something_holds() -> None:
    loop, scheduler, story = _make()
    scheduler.call_later(500, lambda: story.append("x"))
    assert not loop.run_until(lambda: bool(story), limit_us=499)
    assert loop.run_until(lambda: bool(story), limit_us=1_000)
    assert loop.clock.monotonic_us() == 500
    assert not loop.run_until(lambda: False, limit_us=1)


def test_running_in_circles_is_a_failure() -> None:
    loop, scheduler, _ = _make()

    def again() -> None:
        scheduler.call_soon(again)

    again()
    with pytest.raises(AssertionError, match="circles"):
        loop.run_ready()


def test_the_clock() -> None:
    clock = VirtualClock()
    clock.advance_us(7)
    clock.step_wall_us(-3)
    assert (clock.now_us(), clock.monotonic_us()) == (START_US + 4, 7)
