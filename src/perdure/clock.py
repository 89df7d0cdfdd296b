"""Time as an argument: the ``Clock``, the one that reads the system, and the broker's own.

Pure floors take ``now_us`` as an argument; shells hold a ``Clock``. Only ``server`` makes one.

A wall clock may be set. What a broker counts down (wills, expiry, age) may not be: it goes by the
``SteadyClock``, which begins where the wall clock is and then only runs on. What tells people when
something was (offsets, time of publishing) goes by the wall.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

_time_ns: Final = time.time_ns
_monotonic_ns: Final = time.monotonic_ns

PLAUSIBLE_US: Final = 1_704_067_200_000_000
"""2024-01-01, before there was a Perdure: an earlier wall clock was never set."""

STEP_US_MIN: Final = 1_000_000
"""A smaller change of the wall clock is not told, and not remembered."""

LATE_US_MAX: Final = 10_000_000
"""A clock that settles was not later than that: more is a clock that was set."""

STEPS_MAX: Final = 64
"""Steps that are remembered; older ones are taken for the next later one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock(ABC):
    """A source of time. A base class and no protocol: it is read for all that comes, and the
    compiled form calls a method of a class by its place."""

    __slots__ = ()

    @abstractmethod
    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""

    @abstractmethod
    def monotonic_us(self) -> int:
        """Monotonic time in microseconds; never stored, only subtracted."""

    def settles_us(self) -> int:
        """How long after a process has begun this may still learn that it is later than it said;
        0 = it knew from the first moment."""
        return 0


@final
class SystemClock(Clock):
    """The clock of the machine."""

    __slots__ = ()

    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""
        return _time_ns() // 1000

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds."""
        return _monotonic_ns() // 1000


@final
class ClockState:
    """What a broker process hands to the next one.

    Attributes:
        steady_us: how far the steady clock has come, microseconds.
        skew_us: what the wall clock was ahead of it.
        earlier: offsets up to which another skew held, ascending, each with that skew.
        elapsed_us: how long ago that was, by a count of the machine's that nobody sets; None = not
            known, as after the machine was started anew.
    """

    __slots__ = ("earlier", "elapsed_us", "skew_us", "steady_us")

    def __init__(
        self,
        steady_us: int,
        skew_us: int = 0,
        earlier: list[tuple[int, int]] | None = None,
        elapsed_us: int | None = None,
    ) -> None:
        self.steady_us: int = steady_us
        self.skew_us: int = skew_us
        self.earlier: list[tuple[int, int]] = list(earlier or [])
        self.elapsed_us: int | None = elapsed_us


def steady_start_us(wall_us: int, kept: ClockState | None) -> int:
    """Where a steady clock begins.

    Where that of the process before has come to by now, if it is known how long that was ago. Else
    at the wall's time, but not later than by what the wall was set forward in that process: what it
    counts down would pass at once. And never before the time that it had reached: what it has
    stored would wait for a clock that was ahead and is right now.

    If its clock had never been set, what it counted in is gone on with, for the same reason.

    Args:
        wall_us: of the machine.
        kept: of the process before; None = there was none.
    """
    if kept is None:
        return wall_us
    if kept.elapsed_us is not None:
        return kept.steady_us + kept.elapsed_us
    if kept.steady_us + kept.skew_us < PLAUSIBLE_US <= wall_us:
        return kept.steady_us  # it was set in between, and how long that was nobody knows
    return max(wall_us - max(kept.skew_us, 0), kept.steady_us)


@final
class SteadyClock(Clock):
    """The broker's time: it runs on evenly, also while the wall clock is set.

    Time in which the machine is suspended does not count, for no client could come.

    Only in the first moments of a process whose source settles it moves, forward: what it began
    with was too early by what the source finds then.

    Args:
        source: the machine's clock.
        kept: what the process before has left; None = there was none.

    Attributes:
        skew_us: what the wall clock was ahead of this one when it was looked at last.
    """

    __slots__ = ("_base_us", "_earlier", "_settled_us", "_source", "skew_us")

    def __init__(self, source: Clock, kept: ClockState | None = None) -> None:
        self._source: Clock = source
        self._base_us: int = steady_start_us(source.now_us(), kept) - source.monotonic_us()
        self._settled_us: int = source.monotonic_us() + source.settles_us()
        self._earlier: list[tuple[int, int]] = list(kept.earlier) if kept is not None else []
        self.skew_us: int = 0
        self.look()

    def now_us(self) -> int:
        """Steady time, microseconds; about the time of day unless the wall clock was set."""
        return self._source.monotonic_us() + self._base_us

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds."""
        return self._source.monotonic_us()

    def wall_us(self) -> int:
        """Wall time now, microseconds since the epoch."""
        return self._source.now_us()

    def at(self, monotonic_us: int) -> int:
        """Steady time at a monotonic one."""
        return monotonic_us + self._base_us

    def look(self) -> None:
        """Look at the wall clock."""
        skew_us = self._source.now_us() - self.now_us()
        if 0 < skew_us <= LATE_US_MAX and self._source.monotonic_us() < self._settled_us:
            self._base_us += skew_us
            skew_us = 0
        self.skew_us = skew_us

    def stepped(self, last_offset: int, skew_us: int) -> None:
        """Remember that another skew held up to an offset."""
        earlier = self._earlier
        earlier.append((last_offset, skew_us))
        if len(earlier) > STEPS_MAX:
            del earlier[0]

    def forget(self, first_offset: int) -> None:
        """Forget what held for offsets before this one: there are none any more."""
        while self._earlier and self._earlier[0][0] < first_offset:
            del self._earlier[0]

    def steady_at(self, wall_us: int, offset: int) -> int:
        """The steady time at which the wall clock stood so, when an offset was given; 0 = now."""
        for until_offset, skew_us in self._earlier:
            if 0 < offset <= until_offset:
                return wall_us - skew_us
        return wall_us - self.skew_us

    def state(self) -> ClockState:
        """What the next process should know."""
        return ClockState(self.now_us(), self.skew_us, self._earlier)
