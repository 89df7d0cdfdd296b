"""The distance between two commits, and the timer that ends it.

While commits are spaced (``pacer``), a batch that follows another within ``interval_us`` gathers:
it is written when the interval is over or when enough waits for it, so that sparse messages share a
write(2) and a sync. Else it is written at once. What is written is synced as soon as no other sync
runs. With many messages in an interval the loop *lingers* until it is over: one look at all sockets
then finds what looks in between would have found one by one.

Whether there is a distance is learned (``pacer``); here is from when it counts, and when it is
over. The same timer wakes the committer for the sync of what nobody waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from perdure.broker.commit.pacer import CommitPacer
from perdure.broker.runtime.scheduler import Scheduler, Timer
from perdure.clock import Clock

TIMER_GRAIN_US: Final = 1_000
"""Resolution of the loop's timers."""

LINGER_US_MIN: Final = 50
"""A shorter linger saves less than it costs."""

LINGER_US_MAX: Final = 5_000
"""A longer one is taken in parts, for all else on the loop waits for its end."""


@final
class CommitSpacing:
    """When the next commit is due.

    Args:
        scheduler: for the timer.
        clock: monotonic time.
        interval_us: least time between two commits under load, microseconds.
        due: called when a distance or a delay is over, a little early perhaps.

    Attributes:
        ends_us: monotonic time at which the distance from the last commit is over.
        is_due: a timer or a linger is over: what it was for is due.
        pacer: whether commits are spaced.
    """

    __slots__ = (
        "_clock",
        "_due",
        "_from_us",
        "_interval_us",
        "_scheduler",
        "_timer",
        "_timer_due_us",
        "ends_us",
        "is_due",
        "pacer",
    )

    def __init__(
        self, scheduler: Scheduler, clock: Clock, interval_us: int, due: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._clock: Clock = clock
        self._interval_us: int = interval_us
        self._due: Callable[[], None] = due
        self.pacer: CommitPacer = CommitPacer(interval_us)
        self.is_due: bool = False
        self._from_us: int = -interval_us
        """From when the distance to the next commit counts."""
        self.ends_us: int = 0
        self._timer: Timer | None = None
        self._timer_due_us: int = 0

    def written(self, came: int, delivered: int, now_us: int) -> None:
        """A commit was written: the next one is due an interval after this one *was due*, so that
        commits keep a beat and what a turn takes to read and write does not come on top of it. A
        turn that took more than half the interval sets a new beat.

        Args:
            came: messages that waited for it.
            delivered: messages delivered so far.
            now_us: monotonic time.
        """
        due_us = self.ends_us
        is_on_beat = self.pacer.spaced and 0 <= now_us - due_us <= self._interval_us // 2
        self._from_us = due_us if is_on_beat else now_us
        self.ends_us = self._from_us + self._interval_us
        if self._interval_us:
            self.pacer.written(came, delivered, now_us)

    def linger(
        self, due_us: int, *, gathering: bool, still: bool, over: Callable[[], None]
    ) -> bool:
        """Let the distance go by.

        Args:
            due_us: monotonic time at which it is over; -1 = when something comes to the loop.
            gathering: something gathers until it is over: ``due`` must be called then.
            still: the loop may stand still meanwhile.
            over: called when it has.

        Returns:
            As ``Scheduler.linger``.
        """
        pacer = self.pacer
        lingers = still and pacer.lingers and pacer.spaced
        if not lingers and not gathering:
            return False
        now_us = self._clock.monotonic_us()
        if lingers:
            left_us = self._interval_us if due_us < 0 else min(due_us - now_us, self._interval_us)
            if left_us >= LINGER_US_MIN:
                return self._scheduler.linger(min(left_us, LINGER_US_MAX), over)
        if gathering and due_us >= 0:
            self.wake_at(max(due_us, now_us), now_us)
        return False

    def wake_at(self, due_us: int, now_us: int) -> None:
        """Have ``due`` called; the earliest time wins."""
        if self._timer is not None:
            if due_us >= self._timer_due_us:
                return
            # A background sync is far off; a waiter must not wait for that one.
            self._timer.cancel()
        self._timer_due_us = due_us
        self._timer = self._scheduler.call_later(due_us - now_us, self._timer_over)

    def over(self) -> None:
        """A delay is over."""
        # Timers are early by up to a millisecond, and what this one was set for may be done.
        spaced_us = self._clock.monotonic_us() + TIMER_GRAIN_US - self._interval_us
        self.is_due = spaced_us >= self._from_us
        self._due()

    def _timer_over(self) -> None:
        self._timer = None
        self.over()
