"""Virtual time: an event loop that never sleeps, and a broker's scheduler on it.

``VirtualLoop`` is the whole simulation's: network, clients and brokers have their callbacks in it,
and it moves the clock. ``VirtualScheduler`` is one broker process's view of it: ``kill`` makes all
that the process had planned vanish, as ``kill -9`` does.

Everything happens in one thread in an order that the seed decides, so a run repeats exactly. A
process that rests may move the clock: it stands still, and others find themselves late. A
failure in a callback or task is raised by whoever runs the loop.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, final

from tests.support.clock import VirtualClock

TURNS_MAX = 100_000
"""Callbacks at one instant beyond which the loop is taken to run in circles."""


@final
class VirtualTimer:
    """A call at a time to come."""

    __slots__ = ("at_us", "callback", "is_cancelled", "number")

    def __init__(self, at_us: int, number: int, callback: Callable[[], None]) -> None:
        self.at_us = at_us
        self.number = number
        self.callback = callback
        self.is_cancelled = False

    def __lt__(self, other: VirtualTimer) -> bool:
        return (self.at_us, self.number) < (other.at_us, other.number)

    def cancel(self) -> None:
        """Take the call back."""
        self.is_cancelled = True


@final
class VirtualLoop:
    """Callbacks in the order of virtual time.

    Args:
        clock: moved by ``run_for``.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._ready: deque[Callable[[], None]] = deque()
        self._timers: list[VirtualTimer] = []
        self._count = 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run after what is ready now."""
        self._ready.append(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> VirtualTimer:
        """Run once after a delay."""
        self._count += 1
        at_us = self.clock.monotonic_us() + max(0, delay_us)
        timer = VirtualTimer(at_us, self._count, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def run_ready(self) -> None:
        """Run all that is ready or due, without letting time pass."""
        for _ in range(TURNS_MAX):
            if not self._ready:
                self._collect()
                if not self._ready:
                    return
            self._ready.popleft()()
        raise AssertionError("the loop runs in circles")

    def run_for(self, delay_us: int) -> None:
        """Run everything that happens within a time."""
        end_us = self.clock.monotonic_us() + delay_us
        while True:
            self.run_ready()
            next_us = self._next_us()
            if next_us < 0 or next_us > end_us:
                break
            self.clock.advance_us(next_us - self.clock.monotonic_us())
        # A process that stood still has let more time pass.
        self.clock.advance_us(max(0, end_us - self.clock.monotonic_us()))

    def run_until(self, condition: Callable[[], bool], *, limit_us: int) -> bool:
        """Let time pass until something holds; False if it does not within the limit."""
        end_us = self.clock.monotonic_us() + limit_us
        while True:
            self.run_ready()
            if condition():
                return True
            next_us = self._next_us()
            if next_us < 0 or next_us > end_us:
                return False
            self.clock.advance_us(next_us - self.clock.monotonic_us())

    def _next_us(self) -> int:
        """When the next timer is due; -1 = there is none."""
        timers = self._timers
        while timers and timers[0].is_cancelled:
            heapq.heappop(timers)
        return timers[0].at_us if timers else -1

    def _collect(self) -> None:
        """All timers that are due become ready together, as sockets do in one poll."""
        now_us = self.clock.monotonic_us()
        timers = self._timers
        while timers and timers[0].at_us <= now_us:
            timer = heapq.heappop(timers)
            if not timer.is_cancelled:
                self._ready.append(timer.callback)


@final
class VirtualGate:
    """A gate of the virtual scheduler."""

    __slots__ = ("_scheduler", "_waiting", "is_open")

    def __init__(self, scheduler: VirtualScheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[_Task] = []
        self.is_open = False

    def open(self) -> None:
        """Let the waiter go on; opening twice is harmless."""
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.call_soon(task.step)

    def __await__(self) -> Generator[VirtualGate, None, None]:
        if not self.is_open:
            yield self

    def wake(self, task: _Task) -> None:
        """Go on with a task when this is open."""
        if self.is_open:
            self._scheduler.call_soon(task.step)
        else:
            self._waiting.append(task)


@final
class _Task:
    """A coroutine that is driven from gate to gate."""

    __slots__ = ("_scheduler", "name", "work")

    def __init__(
        self, scheduler: VirtualScheduler, work: Coroutine[Any, Any, None], name: str
    ) -> None:
        self._scheduler = scheduler
        self.work = work
        self.name = name

    def step(self) -> None:
        """Run up to the next gate."""
        try:
            gate = self.work.send(None)
        except StopIteration:
            self._scheduler.tasks.discard(self)
            return
        except BaseException:
            self._scheduler.tasks.discard(self)
            raise
        assert isinstance(gate, VirtualGate), f"{self.name} awaits something else: {gate!r}"
        gate.wake(self)


@final
class _Blocked:
    """Blocking work under way: when it has its effect, and when it is done."""

    __slots__ = ("_work", "done", "done_us", "effect_us", "failure")

    def __init__(
        self,
        work: Callable[[], None],
        done: Callable[[BaseException | None], None],
        effect_us: int,
        done_us: int,
    ) -> None:
        self._work: Callable[[], None] | None = work
        self.done = done
        self.effect_us = effect_us
        self.done_us = done_us
        self.failure: BaseException | None = None

    def act(self) -> None:
        """Do the work, once."""
        work, self._work = self._work, None
        if work is None:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            self.failure = error


@final
class VirtualScheduler:
    """``broker.runtime.scheduler.Scheduler`` for one broker process in a virtual loop.

    Args:
        loop: of the simulation.
        chance: decides how long blocking work takes, when in that time it has its effect, and
            whether a rest stands still.
        blocking_us: least and most time that blocking work takes.

    Attributes:
        tasks: what has not finished.
        is_alive: False once the process was killed.
        rest_count: rests that were asked for.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        *,
        blocking_us: tuple[int, int] = (100, 3_000),
    ) -> None:
        self._loop = loop
        self._chance = chance
        self.blocking_us = blocking_us
        self.tasks: set[_Task] = set()
        self.is_alive = True
        self.rest_count = 0
        self._blocking: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = (
            deque()
        )
        self._blocked: _Blocked | None = None

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run at the end of this turn."""
        self._loop.call_soon(self._guarded(callback))

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> VirtualTimer:
        """Run once after a delay."""
        return self._loop.call_later(delay_us, self._guarded(callback))

    def linger(self, delay_us: int, callback: Callable[[], None]) -> bool:
        """Run once after a delay; chance decides whether the process stands still until then.

        If it does, time passes for all others too, and what is due meanwhile is late: nothing is
        read, and no timer of the process goes off.
        """
        self.rest_count += 1
        if self._chance.random() < 0.5:
            self.call_later(delay_us, callback)
            return False
        clock = self._loop.clock
        until_us = clock.monotonic_us() + delay_us
        blocked = self._blocked
        if blocked is not None and blocked.effect_us <= until_us:
            clock.advance_us(max(0, blocked.effect_us - clock.monotonic_us()))
            blocked.act()
            if blocked.done_us <= until_us:
                clock.advance_us(max(0, blocked.done_us - clock.monotonic_us()))
                self._finish(blocked)
                return True
        clock.advance_us(until_us - clock.monotonic_us())
        self.call_soon(callback)
        return False

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Run ``work`` some time later, one at a time, then ``done`` some time after that."""
        self._blocking.append((work, done))
        if self._blocked is None:
            self._next_blocking()

    def poll_finished(self) -> bool:
        """Chance decides whether the process waits for what is under way; then time passes."""
        blocked = self._blocked
        if blocked is None or self._chance.random() < 0.5:
            return False
        clock = self._loop.clock
        clock.advance_us(max(0, blocked.done_us - clock.monotonic_us()))
        blocked.act()
        self._finish(blocked)
        return True

    def turn_ended(self) -> None:
        """Virtual loops collect as Python does."""

    def gate(self) -> VirtualGate:
        """A closed gate."""
        return VirtualGate(self)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a coroutine as a task; its failure is raised by whoever runs the loop."""
        task = _Task(self, work, name)
        self.tasks.add(task)
        self.call_soon(task.step)

    def run(self, work: Coroutine[Any, Any, None], *, limit_us: int = 60_000_000) -> None:
        """Run a coroutine to its end, and the loop meanwhile."""
        finished: list[bool] = []

        async def whole() -> None:
            await work
            finished.append(True)

        self.spawn(whole(), name="run")
        assert self._loop.run_until(lambda: bool(finished), limit_us=limit_us), "it does not end"

    def kill(self) -> None:
        """The process is gone: nothing that it planned happens."""
        self.is_alive = False
        tasks, self.tasks = self.tasks, set()
        for task in tasks:
            task.work.close()

    def _guarded(self, callback: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            if self.is_alive:
                callback()

        return call

    def _next_blocking(self) -> None:
        work, done = self._blocking.popleft()
        takes_us = self._chance.randint(*self.blocking_us)
        delay_us = self._chance.choice((0, takes_us // 2, takes_us))
        now_us = self._loop.clock.monotonic_us()
        blocked = _Blocked(work, done, now_us + delay_us, now_us + takes_us)
        self._blocked = blocked
        self.call_later(delay_us, blocked.act)
        self.call_later(takes_us, lambda: self._finish(blocked))

    def _finish(self, blocked: _Blocked) -> None:
        """Tell what came of blocking work, unless a rest has done so already."""
        if blocked is not self._blocked:
            return
        self._blocked = None
        if self._blocking:
            self._next_blocking()
        blocked.done(blocked.failure)
