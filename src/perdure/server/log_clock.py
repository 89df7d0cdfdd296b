"""The time that all nodes of a cluster go by: the log's own.

A node's clock may be hours off; deadlines that it writes are looked at by others. What a record's
time is ahead of this machine's monotonic clock when the record is read is the truth less the time
that it was on its way, so the highest of those of late is taken.
"""

from __future__ import annotations

from typing import Final, final

from perdure.clock import Clock

WINDOW_US: Final = 30_000_000
"""A clock of the log's that was set back is believed after one to two of these."""


@final
class LogClock(Clock):
    """Wall time as the log has it, between its records by the machine's monotonic clock.

    Args:
        machine: the machine's clock, which counts until the log was heard of.
    """

    __slots__ = ("_before_us", "_best_us", "_machine", "_since_us")

    def __init__(self, machine: Clock) -> None:
        self._machine: Clock = machine
        self._best_us: int | None = None
        self._before_us: int | None = None
        self._since_us: int = 0

    def heard(self, log_time_us: int) -> None:
        """A record was read."""
        monotonic_us = self._machine.monotonic_us()
        lead_us = log_time_us - monotonic_us
        if self._best_us is None or monotonic_us - self._since_us >= WINDOW_US:
            self._before_us = self._best_us
            self._best_us = lead_us
            self._since_us = monotonic_us
        elif lead_us > self._best_us:
            self._best_us = lead_us

    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""
        best_us = self._best_us
        if best_us is None:
            return self._machine.now_us()
        before_us = self._before_us
        lead_us = best_us if before_us is None else max(best_us, before_us)
        return self._machine.monotonic_us() + lead_us

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds."""
        return self._machine.monotonic_us()

    def settles_us(self) -> int:
        """See ``Clock``: where a machine is busy all that it reads at first was long on its way."""
        return WINDOW_US
