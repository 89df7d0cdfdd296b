"""How the broker gets its turns: the one seam between it and an event loop.

The broker never imports an event loop. ``server`` gives it an asyncio one, the simulator a
virtual one.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol


class Timer(Protocol):
    """A call that was asked for and can be taken back."""

    def cancel(self) -> None:
        """Take the call back; harmless when it has run."""
        ...


class Gate(Protocol):
    """Something to await that somebody else opens."""

    def open(self) -> None:
        """Let the waiter go on; opening twice is harmless."""
        ...

    def __await__(self) -> Generator[Any, Any, None]: ...


class Scheduler(Protocol):
    """Turns, timers, threads and tasks."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run at the end of this turn of the loop."""
        ...

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Run once after a delay, microseconds."""
        ...

    def linger(self, delay_us: int, callback: Callable[[], None]) -> bool:
        """Run ``callback`` after a delay, and as little else as possible before it.

        The loop may stand still meanwhile. What ``run_blocking`` has done ends the linger, or what
        the store hands over from a thread of its own: that was heard then, and ``callback`` will
        not run.

        Args:
            delay_us: microseconds; so long may everything else on the loop have to wait.
            callback: runs on the loop, never within this call.

        Returns:
            Whether something has ended the linger.
        """
        ...

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Run ``work`` in the commit thread (one at a time), then ``done`` on the loop."""
        ...

    def poll_finished(self) -> bool:
        """Run the ``done`` of what ``run_blocking`` has finished now, not in a later turn.

        May wait for a moment where it must be about to finish.

        Returns:
            Whether anything was finished.
        """
        ...

    def turn_ended(self) -> None:
        """A turn of the broker has ended: what its process has to do now and then, it does now."""
        ...

    def gate(self) -> Gate:
        """A closed gate."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a coroutine as a task of the broker; a failure of it stops the broker."""
        ...


@types.coroutine
def _finish(work: Coroutine[Any, Any, None], yielded: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine that was started outside a task and has suspended."""
    while True:
        try:
            sent = yield yielded
        except GeneratorExit:
            work.close()  # it may be closed already, which ``throw`` would complain of
            raise
        except BaseException as error:  # noqa: BLE001 - belongs to the coroutine
            try:
                yielded = work.throw(error)
            except StopIteration:
                return
        else:
            try:
                yielded = work.send(sent)
            except StopIteration:
                return


async def _run_rest(work: Awaitable[None]) -> None:
    await work


def run_eagerly(scheduler: Scheduler, work: Coroutine[Any, Any, None], *, name: str) -> bool:
    """Run a coroutine now, and as a task only if it has to wait.

    With an embedded store CONNECT and SUBSCRIBE hardly ever wait, and a task each would cost
    more than the work.

    Returns:
        Whether it has finished already.
    """
    try:
        yielded = work.send(None)
    except StopIteration:
        return True
    scheduler.spawn(_run_rest(_finish(work, yielded)), name=name)
    return False
