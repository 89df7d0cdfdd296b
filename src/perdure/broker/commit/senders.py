"""Who is written to at the end of a turn, and in which order.

Writing to a thousand connections takes as long as several syncs. So where it takes long, the
commit thread is asked on the way what it has finished: whom that answers comes before those that
are left. They go on, and who is left has waited for as long anyway.

Invariant: whoever was added is written to once for it, in this turn, or in the next one if it was
added while this one wrote.
"""

from __future__ import annotations

from typing import Final, final

from perdure.broker.runtime.scheduler import Scheduler
from perdure.clock import Clock

LONG_US: Final = 2_000
"""Time after which it pays to ask: many disks have synced by then, and who waits for that would
wait for another turn as long as this one."""

SENT_AT_ONCE: Final = 32
"""Connections that are written to between two looks at the clock: each is a system call."""


class Flushed:
    """Who gathers bytes in a turn, to be written once at its end."""

    __slots__ = ()

    def flush_turn(self) -> None:
        """Write what was gathered."""
        raise NotImplementedError


@final
class Senders:
    """Those that have gathered something.

    Args:
        scheduler: asked for what the commit thread has finished.
        clock: monotonic time.
    """

    __slots__ = ("_clock", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock: Clock = clock
        self._waiting: list[Flushed] = []

    def add(self, sender: Flushed) -> None:
        """It has something to be written."""
        self._waiting.append(sender)

    def hear(self) -> None:
        """Take what the commit thread has finished: whom it answers comes first."""
        before = len(self._waiting)
        if self._scheduler.poll_finished():
            waiting = self._waiting
            self._waiting = waiting[before:] + waiting[:before]

    def send(self, *, hears: bool) -> None:
        """Write to all.

        Args:
            hears: ask for what was finished, if it takes long.
        """
        later: list[Flushed] = []
        try:
            while self._waiting:
                waiting = self._waiting
                self._waiting = []
                sent = self._send_some(waiting) if hears else _send_all(waiting)
                later += self._waiting
                self._waiting = waiting[sent:]
                if self._waiting:
                    self.hear()
        finally:
            self._waiting = later + self._waiting

    def _send_some(self, waiting: list[Flushed]) -> int:
        """Write to all, or as long as it takes; returns to how many."""
        ends_us = self._clock.monotonic_us() + LONG_US
        sent = 0
        for sender in waiting:
            sender.flush_turn()
            sent += 1
            if not sent % SENT_AT_ONCE and self._clock.monotonic_us() >= ends_us:
                break
        return sent


def _send_all(waiting: list[Flushed]) -> int:
    for sender in waiting:
        sender.flush_turn()
    return len(waiting)
