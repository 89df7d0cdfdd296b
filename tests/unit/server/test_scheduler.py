"""The broker's turns, timers, tasks and its commit thread on a real event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from perdure.errors import StorageUnavailable
from perdure.server.collector import Collector
from perdure.server.scheduler import LoopScheduler
from tests.support.bounds import HANG_S

LONG_US = 30_000_000
"""A rest that something must end."""


class Story:
    """Works of the commit thread that a test starts and holds, and what was heard of them."""

    def __init__(self, scheduler: LoopScheduler) -> None:
        self.scheduler = scheduler
        self.heard: list[str] = []
        self.over = asyncio.Event()
        self.thread = threading.get_ident()

    def add(self, name: str, work: Callable[[], object]) -> None:
        def done(error: BaseException | None) -> None:
            assert threading.get_ident() == self.thread
            self.heard.append(name if error is None else f"{name}: {error}")

        def run() -> None:
            work()

        self.scheduler.run_blocking(run, done)

    def finish(self, name: str, *, rings: bool = False) -> None:
        """Have a work done whose ``done`` the loop has not been told yet.

        Args:
            name: of the work.
            rings: the thread still takes the loop to rest, which has just ceased to.
        """
        self.scheduler.is_resting = rings
        self.add(name, lambda: None)
        # The thread does one thing after the other: in the second it has told of the first.
        begun = threading.Event()
        self.add("next", begun.set)
        assert begun.wait(HANG_S)

    def rest_over(self) -> None:
        self.heard.append("over")
        self.over.set()


@pytest.fixture
async def failures() -> list[BaseException]:
    return []


@pytest.fixture
async def scheduler(failures: list[BaseException]) -> AsyncIterator[LoopScheduler]:
    made = LoopScheduler(asyncio.get_running_loop(), failures.append)
    yield made
    await made.close()


async def test_work_runs_in_one_other_thread_and_in_order(scheduler: LoopScheduler) -> None:
    threads: set[int] = set()
    order: list[int] = []
    done = asyncio.Event()

    def finished(error: BaseException | None) -> None:
        assert error is None
        assert threading.get_ident() not in threads
        if len(order) == 50:
            done.set()

    for number in range(50):

        def work(number: int = number) -> None:
            threads.add(threading.get_ident())
            order.append(number)

        scheduler.run_blocking(work, finished)
    await done.wait()
    assert order == list(range(50))
    assert len(threads) == 1


@pytest.fixture
async def patient(failures: list[BaseException]) -> AsyncIterator[LoopScheduler]:
    """One that waits for its commit thread to begin, however busy the machine is."""
    made = LoopScheduler(asyncio.get_running_loop(), failures.append, begin_s_max=3_600)
    yield made
    await made.close()


async def test_work_has_begun_before_the_loop_goes_on(patient: LoopScheduler) -> None:
    """Else it would wait for the GIL until the loop rests, as long as that computes."""
    for _ in range(20):
        begun = threading.Event()
        heard = asyncio.Event()
        patient.run_blocking(begun.set, lambda _, heard=heard: heard.set())
        # The loop does not give up the GIL from here on; the thread may have lost it between
        # saying that it begins and beginning.
        seen = begun.is_set()
        await heard.wait()
        if seen:
            return
    pytest.fail("the commit thread never began while it was waited for")


async def test_the_loop_does_not_wait_for_a_thread_that_is_busy(patient: LoopScheduler) -> None:
    release = threading.Event()
    errors: list[BaseException | None] = []
    heard = asyncio.Event()

    def work() -> None:
        assert release.wait(HANG_S), "the loop waited for us"

    def done(error: BaseException | None) -> None:
        errors.append(error)
        if len(errors) == 2:
            heard.set()

    patient.run_blocking(work, done)
    patient.run_blocking(lambda: None, done)
    release.set()
    await heard.wait()
    assert errors == [None, None]


async def test_a_thread_that_does_not_come_to_it_is_not_waited_for(
    failures: list[BaseException],
) -> None:
    made = LoopScheduler(asyncio.get_running_loop(), failures.append, begin_s_max=0)
    heard = asyncio.Event()
    for _ in range(3):
        made.run_blocking(lambda: None, lambda _: heard.set())
        await heard.wait()
        heard.clear()
    await made.close()


async def test_an_error_of_the_work_is_handed_over(scheduler: LoopScheduler) -> None:
    answer: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def work() -> None:
        raise StorageUnavailable("gone")

    scheduler.run_blocking(work, answer.set_result)
    assert isinstance(await answer, StorageUnavailable)
    again: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    scheduler.run_blocking(lambda: None, again.set_result)
    assert await again is None


async def test_a_gate_opens_once(scheduler: LoopScheduler) -> None:
    gate = scheduler.gate()
    gate.open()
    gate.open()
    await gate


async def test_turns_and_timers(scheduler: LoopScheduler) -> None:
    seen: list[str] = []
    done = asyncio.Event()
    scheduler.call_soon(lambda: seen.append("soon"))
    scheduler.call_later(1_000, done.set)
    scheduler.call_later(60_000_000, lambda: seen.append("never")).cancel()
    await done.wait()
    assert seen == ["soon"]


async def test_a_task_that_fails_is_told(
    scheduler: LoopScheduler, failures: list[BaseException]
) -> None:
    ended = asyncio.Event()

    async def fail() -> None:
        try:
            raise RuntimeError("x")
        finally:
            asyncio.get_running_loop().call_soon(ended.set)

    scheduler.spawn(fail(), name="fails")
    await ended.wait()
    await asyncio.sleep(0)
    assert [str(error) for error in failures] == ["x"]


async def test_close_ends_tasks_and_thread(failures: list[BaseException]) -> None:
    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append)
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    scheduler.spawn(wait(), name="waits")
    await started.wait()
    await scheduler.close()
    assert not failures
    assert not [t for t in threading.enumerate() if t.name == "commit" and t.is_alive()]


@pytest.fixture
async def story(scheduler: LoopScheduler) -> Story:
    return Story(scheduler)


async def test_a_rest_ends_after_its_time(story: Story) -> None:
    assert not story.scheduler.linger(1_000, story.rest_over)
    assert not story.heard  # not within the rest
    await story.over.wait()
    assert story.heard == ["over"]


async def test_what_was_finished_before_a_rest_ends_it(story: Story) -> None:
    heard = threading.Event()
    heard_in_time: list[bool] = []
    story.finish("first")
    story.add("last", lambda: heard_in_time.append(heard.wait(HANG_S)))
    assert story.scheduler.linger(LONG_US, story.rest_over)
    assert story.heard[0] == "first"
    heard.set()
    while "last" not in story.heard:
        story.scheduler.linger(LONG_US, story.rest_over)
    assert heard_in_time == [True]
    assert story.heard == ["first", "next", "last"]


async def test_what_is_finished_in_a_rest_ends_it(story: Story) -> None:
    """The work waits until the loop rests: only the rest itself can hear of it."""

    def work() -> None:
        while not story.scheduler.is_resting:
            pass

    story.add("work", work)
    assert story.scheduler.linger(LONG_US, story.rest_over)
    assert story.heard == ["work"]


def _in_a_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


async def test_what_is_handed_over_in_a_rest_ends_it(story: Story) -> None:
    """The thread waits until the loop rests: only the rest itself can hear of it."""

    def hand() -> None:
        while not story.scheduler.is_resting:
            pass
        story.scheduler.hand(lambda: story.heard.append("handed"))

    thread = _in_a_thread(hand)
    assert story.scheduler.linger(LONG_US, story.rest_over)
    assert story.heard == ["handed"]
    thread.join()
    await asyncio.sleep(0)
    assert story.heard == ["handed"]  # once


async def test_what_was_handed_over_before_a_rest_ends_it(story: Story) -> None:
    _in_a_thread(lambda: story.scheduler.hand(lambda: story.heard.append("handed"))).join()
    assert not story.heard  # a turn is not interrupted
    assert story.scheduler.linger(LONG_US, story.rest_over)
    assert story.heard == ["handed"]


async def test_what_is_handed_over_is_heard_in_order_without_a_rest(story: Story) -> None:
    done = asyncio.Event()

    def hand() -> None:
        for number in range(50):
            story.scheduler.hand(lambda number=number: story.heard.append(str(number)))  # type: ignore[misc]
        story.scheduler.hand(done.set)

    thread = _in_a_thread(hand)
    await done.wait()
    thread.join()
    assert story.heard == [str(number) for number in range(50)]


async def test_a_poll_takes_nothing_that_was_handed_over(failures: list[BaseException]) -> None:
    """It comes in the middle of a turn."""
    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append, poll_s_max=3_600)
    story = Story(scheduler)

    def work() -> None:
        while not scheduler.is_resting:
            pass
        scheduler.hand(story.rest_over)

    story.add("work", work)
    assert scheduler.poll_finished()
    assert story.heard == ["work"]
    await story.over.wait()
    assert story.heard == ["work", "over"]
    await scheduler.close()


async def test_what_fails_when_it_was_handed_over_keeps_nothing_back(story: Story) -> None:
    def fails() -> None:
        raise ValueError("fails")

    story.scheduler.hand(fails)
    story.scheduler.hand(lambda: story.heard.append("next"))
    with pytest.raises(ValueError, match="fails"):
        story.scheduler.linger(LONG_US, story.rest_over)
    await story.over.wait()
    assert story.heard == ["next", "over"]


async def test_what_is_about_to_finish_is_polled_for(failures: list[BaseException]) -> None:
    """The work ends once the loop waits for it: it needs the GIL to say so."""
    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append, poll_s_max=3_600)
    story = Story(scheduler)
    assert not scheduler.poll_finished()  # nothing is under way, so there is no wait

    def work() -> None:
        while not scheduler.is_resting:
            pass

    story.add("work", work)
    assert scheduler.poll_finished()
    assert story.heard == ["work"]
    story.finish("finished")
    assert scheduler.poll_finished()
    assert "finished" in story.heard
    while "next" not in story.heard:
        scheduler.poll_finished()
    await scheduler.close()


async def test_polls_in_vain_are_given_up_for_a_while(failures: list[BaseException]) -> None:
    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append, poll_s_max=0.0)
    story = Story(scheduler)
    release, rests = threading.Event(), list[int]()
    story.add("work", lambda: release.wait(30))

    listen = scheduler._listen

    def listened(until_s: float) -> None:
        rests.append(len(polls))
        listen(until_s)

    scheduler._listen = listened  # type: ignore[method-assign]
    polls: list[bool] = []
    while len(polls) < 60:
        polls.append(scheduler.poll_finished())
    assert not any(polls)
    # One, two, ... are left out, then POLLS_SKIPPED_MAX each time.
    assert rests == [0, 2, 5, 9, 14, 20, 27, 35, 44, 53]
    release.set()
    while "work" not in story.heard:
        await asyncio.sleep(0)
    await scheduler.close()


async def test_nothing_is_lost_or_heard_twice(story: Story) -> None:
    """Rests of no and of a little time, and polls between them, against a busy commit thread."""
    names = [str(number) for number in range(3_000)]
    for name in names:
        story.add(name, lambda: None)
    rests = 0
    while len(story.heard) < len(names):
        rests += 1
        story.scheduler.linger((0, 1, 20, 200)[rests % 4], lambda: None)
        if rests % 3 == 0:
            await asyncio.sleep(0)
        if rests % 5 == 0:
            story.scheduler.poll_finished()
    assert story.heard == names
    await asyncio.sleep(0)
    assert story.heard == names


async def test_a_ring_that_came_late_does_not_shorten_the_next_rest(story: Story) -> None:
    story.finish("first", rings=True)
    story.finish("second", rings=True)  # it rings already
    while len(story.heard) < 4:
        story.scheduler.linger(0, story.rest_over)
    story.heard.clear()
    begun_s = time.monotonic()
    assert not story.scheduler.linger(20_000, story.rest_over)
    assert time.monotonic() - begun_s >= 0.02
    await asyncio.sleep(0)
    assert "over" in story.heard


@pytest.mark.parametrize("rests", [True, False])
async def test_a_failure_of_one_does_not_lose_what_was_finished_with_it(
    story: Story, rests: bool
) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(str(context["exception"]))
    )

    def fail(error: BaseException | None) -> None:
        raise RuntimeError("in done")

    story.scheduler.is_resting = rests
    story.scheduler.run_blocking(lambda: None, fail)
    story.scheduler.run_blocking(lambda: None, fail)
    story.finish("second", rings=rests)
    if rests:
        with pytest.raises(RuntimeError, match="in done"):
            story.scheduler.linger(LONG_US, story.rest_over)
        await story.over.wait()  # who waits for the rest is woken
    while "second" not in story.heard or "next" not in story.heard:
        await asyncio.sleep(0)
    assert [name for name in story.heard if name != "over"] == ["second", "next"]
    assert told == ["in done"] * (1 if rests else 2)


async def test_an_interrupt_in_a_rest_loses_nothing(story: Story) -> None:
    """As a second Ctrl-C raises it, which does not wait for the end of a rest."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    raised = threading.Event()

    def work() -> None:
        while not story.scheduler.is_resting:
            pass
        os.kill(os.getpid(), signal.SIGUSR1)
        raised.wait(HANG_S)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        story.add("work", work)
        with pytest.raises(KeyboardInterrupt):
            story.scheduler.linger(LONG_US, story.rest_over)
    finally:
        signal.signal(signal.SIGUSR1, before)
        raised.set()
    await story.over.wait()
    while "work" not in story.heard:
        await asyncio.sleep(0)
    assert sorted(story.heard) == ["over", "work"]


async def test_a_signal_in_a_rest_is_handled_after_it(story: Story) -> None:
    loop = asyncio.get_running_loop()
    handled = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, handled.set)

    def work() -> None:
        while not story.scheduler.is_resting:
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    try:
        story.add("work", work)
        assert story.scheduler.linger(LONG_US, story.rest_over)
        await handled.wait()
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


async def test_close_hears_what_is_still_under_way(failures: list[BaseException]) -> None:
    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append)
    story = Story(scheduler)
    story.add("work", lambda: None)
    await scheduler.close()
    await asyncio.sleep(0)
    assert story.heard == ["work"]
    assert not scheduler.linger(0, story.rest_over)
    await story.over.wait()


async def test_garbage_is_looked_at_when_a_turn_has_ended(failures: list[BaseException]) -> None:
    looked: list[int] = []

    def new() -> int:
        looked.append(1)
        return 0

    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append, collector=Collector(new))
    for turns in range(1, 4):
        scheduler.turn_ended()
        assert len(looked) == turns
    await scheduler.close()
