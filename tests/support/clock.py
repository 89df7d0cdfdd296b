"""A clock that stands still until it is moved."""

from __future__ import annotations

from typing import final

from perdure.clock import Clock, ClockState

START_US = 1_800_000_000_000_000
"""Wall time at which simulations begin, microseconds since the epoch."""


@final
class VirtualClock(Clock):
    """Wall and monotonic time that only ``advance_us`` and ``step_wall_us`` move.

    Args:
        now_us: wall time at the beginning.
    """

    def __init__(self, now_us: int = START_US) -> None:
        self._wall_us = now_us
        self._monotonic_us = 0

    def now_us(self) -> int:
        """Wall time, microseconds since the epoch."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Monotonic time, microseconds since the beginning."""
        return self._monotonic_us

    def advance_us(self, delay_us: int) -> None:
        """Let time pass."""
        assert delay_us >= 0
        self._wall_us += delay_us
        self._monotonic_us += delay_us

    def step_wall_us(self, change_us: int) -> None:
        """Set the wall clock, forth or back, as an administrator or NTP does."""
        self._wall_us += change_us


@final
class KeptClock:
    """A ``broker.monitor.clock_watch.ClockMemory`` that outlives the broker, as its file does."""

    def __init__(self) -> None:
        self.state: ClockState | None = None

    def load(self) -> ClockState | None:
        """What was kept last."""
        return self.state

    def save(self, state: ClockState) -> None:
        """Keep it."""
        self.state = state
