"""From when a batch that is on its way through a log elsewhere is late.

One batch waits for another: each costs the log, and every node, more than what is in it, so with
several on their way all become slower. But while a log stalls all that comes would gather, and take
its own time when the stall is over. So behind a batch that is late the next one follows at once,
and comes back with it.

What is usual is learned. A log that always takes long has enough to do: there none is late, so that
nothing makes it slower still. It knows no clock.

Invariant: what the log always takes is never late.
"""

from __future__ import annotations

from typing import Final, final

LATE: Final = 2
"""Times the usual time."""

LATE_US_MIN: Final = 5_000
"""No batch is late before: a log that mostly takes less has nothing to gain from another one."""

USUAL_US_MAX: Final = 10_000
"""The log takes long from here on: no batch is late."""

_SMOOTH: Final = 8
"""A new time is one part in so many of the usual one."""


@final
class LogPace:
    """What the log takes for a batch, as learned.

    Attributes:
        usual_us: microseconds.
    """

    __slots__ = ("usual_us",)

    def __init__(self) -> None:
        self.usual_us: int = 0

    @property
    def late_us(self) -> int:
        """How long a batch is on its way when it is late, microseconds; -1 = none is late."""
        if self.usual_us >= USUAL_US_MAX:
            return -1
        return max(LATE * self.usual_us, LATE_US_MIN)

    def took(self, elapsed_us: int) -> None:
        """A batch has come back.

        Args:
            elapsed_us: since it was submitted. A stall counts no more than twice what is usual.
        """
        most_us = max(LATE * self.usual_us, LATE_US_MIN)
        self.usual_us += (min(elapsed_us, most_us) - self.usual_us) // _SMOOTH
