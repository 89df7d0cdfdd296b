"""The asyncio scheduler of the broker: turns, timers, the commit thread, lingers and tasks.

It knows nothing of what it runs. Invariant: what the commit thread has finished is heard on the
loop once, in order, whether the loop polls, works or lingers, and whatever raises meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, final

from perdure.server.collector import Collector

_Done: TypeAlias = Callable[[BaseException | None], None]
_Commit: TypeAlias = tuple[Callable[[], None], _Done]

BEGIN_S_MAX: Final = 0.001
"""The loop waits no longer for the commit thread to begin: on a busy machine it may be kept off."""

POLL_S_MAX: Final = 0.0003
"""The loop waits no longer for the commit thread to say that it has finished."""

POLLS_SKIPPED_MAX: Final = 8
"""Polls that do not wait after one that has waited in vain: 1 at first, then one more each time."""


@final
class LoopGate:
    """A gate on a future of the loop."""

    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[None] = loop.create_future()

    def open(self) -> None:
        """Let the waiter go on; opening twice is harmless."""
        if not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._future.__await__()


@final
class LoopScheduler:
    """Runs a broker on an asyncio event loop.

    Args:
        loop: the running loop.
        failed: called with the error of a task that failed; it should stop the broker.
        begin_s_max: how long ``run_blocking`` may wait for the commit thread to begin.
        poll_s_max: how long ``poll_finished`` may wait for it to say that it has finished.
        collector: of this process.

    Attributes:
        is_resting: the loop's thread stands still until the commit thread rings, or its time is up.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[BaseException], None],
        *,
        begin_s_max: float = BEGIN_S_MAX,
        poll_s_max: float = POLL_S_MAX,
        collector: Collector | None = None,
    ) -> None:
        self._loop = loop
        self._collector = collector or Collector()
        self._failed = failed
        self._begin_s_max = begin_s_max
        self._poll_s_max = poll_s_max
        self._tasks: set[asyncio.Task[None]] = set()
        # A queue and a thread of our own: an executor's futures cost more than a short sync.
        self._commits: SimpleQueue[_Commit | None] = SimpleQueue()
        self._finished: deque[tuple[_Done, BaseException | None]] = deque()
        self._handed: deque[Callable[[], object]] = deque()
        self.is_resting = False
        # Rung (released) by the commit thread to end a linger. The ring of one that was over just
        # then wakes the next one early: that looks at what is finished and goes on.
        self._bell = threading.Lock()
        self._bell.acquire()
        # Released by the commit thread when it takes up the work that the loop waits to see begun.
        self._begun = threading.Lock()
        self._begun.acquire()
        self._handed_over = 0
        self._polls_to_skip = 0
        self._polls_skipped = 0
        self._thread = threading.Thread(target=self._commit, name="commit", daemon=True)
        self._thread.start()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run at the end of this turn of the loop."""
        self._loop.call_soon(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Run once after a delay, microseconds."""
        # uvloop counts in milliseconds and calls at once what it rounds to 0: who asks again for
        # the linger would make it spin.
        return self._loop.call_later(-(-delay_us // 1000) / 1000, callback)

    def linger(self, delay_us: int, callback: Callable[[], None]) -> bool:
        """Hold the loop's thread until the delay is over, the commit thread has finished, or
        another thread hands something over.

        Signals are noted meanwhile, and handled by the loop after it.
        """
        try:
            self._listen(time.monotonic() + delay_us / 1e6, handed=True)
            if self._finished or self._handed:
                self._hear()
                self._take_handed()
                return True
        except BaseException:
            # An interrupt, or a ``done`` that failed: who waits for this linger is woken the more
            # so.
            self._loop.call_soon(self._hear)
            self._loop.call_soon(self._take_handed)
            self._loop.call_soon(callback)
            raise
        self._loop.call_soon(callback)
        return False

    def _listen(self, until_s: float, *, handed: bool = False) -> None:
        """Wait until something is finished, or handed over where that counts, or it is so late."""
        # The commit thread adds what is finished and looks then whether the loop lingers; here it
        # is said first that it lingers, or does no more, and looked then for what is finished. So
        # one of the two always sees the other.
        self.is_resting = True
        try:
            while not self._finished and not (handed and self._handed):
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not self._bell.acquire(timeout=left_s):
                    return
        finally:
            self.is_resting = False

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Run ``work`` in the commit thread, then ``done`` on the loop.

        Waits until an idle commit thread has begun. Without that the thread would not get the GIL
        before the loop lingers or has held it for 5 ms, and a sync would run after what the loop
        does meanwhile instead of beside it.
        """
        self._handed_over += 1
        self._commits.put((work, done))
        if self._handed_over == 1:
            self._begun.acquire(timeout=self._begin_s_max)

    def poll_finished(self) -> bool:
        """Hear what the commit thread has finished now, not in the next turn of the loop.

        The thread needs the GIL to say that it has finished, and the loop may hold it for long.
        So the loop stands still for a moment, unless that was in vain lately: how long a sync
        takes cannot be measured where its end waits for the GIL.
        """
        if not self._finished:
            if not self._handed_over:
                return False
            if self._polls_to_skip:
                self._polls_to_skip -= 1
                return False
            self._listen(time.monotonic() + self._poll_s_max)
            if not self._finished:
                self._polls_skipped = min(self._polls_skipped + 1, POLLS_SKIPPED_MAX)
                self._polls_to_skip = self._polls_skipped
                return False
            self._polls_skipped = 0
        self._hear()
        return True

    def hand(self, call: Callable[[], object]) -> None:
        """Run something on the loop, soon: from any thread. A linger ends for it, a turn does not.

        Raises:
            RuntimeError: the loop was closed.
        """
        self._handed.append(call)
        # Also where it ends a linger: a poll may be what is rung.
        self._loop.call_soon_threadsafe(self._take_handed)
        if self.is_resting:
            with contextlib.suppress(RuntimeError):  # it rings already
                self._bell.release()

    def _take_handed(self) -> None:
        """Run what was handed over, unless a linger has already."""
        while self._handed:
            call = self._handed.popleft()
            try:
                call()
            except BaseException:
                self._loop.call_soon(self._take_handed)  # what it has not come to
                raise

    def turn_ended(self) -> None:
        """Collect garbage, if there is enough to look through."""
        self._collector.turn_ended()

    def gate(self) -> LoopGate:
        """A closed gate."""
        return LoopGate(self._loop)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a coroutine as a task; its failure is reported."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        """Cancel what still runs and end the commit thread."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._commits.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _commit(self) -> None:
        """The commit thread: one piece of work after the other, until ``close``."""
        while True:
            commit = self._commits.get()
            if commit is None:
                return
            work, done = commit
            with contextlib.suppress(RuntimeError):  # nobody has waited for the last one
                self._begun.release()
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - handed to the loop, where it is judged
                failure = error
            self._finished.append((done, failure))
            with contextlib.suppress(RuntimeError):  # it rings already; the loop was closed
                if self.is_resting:
                    self._bell.release()
                else:
                    self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        """Take what the commit thread has finished, unless a linger has already."""
        while self._finished:
            done, failure = self._finished.popleft()
            self._handed_over -= 1
            try:
                done(failure)
            except BaseException:
                self._loop.call_soon(self._hear)  # what it has not come to
                raise

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._failed(error)
