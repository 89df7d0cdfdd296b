"""Notices that the wall clock is set, says so, and hands the broker's time to the next process.

All deadlines go by the steady clock (``clock.SteadyClock``), so a step costs nobody anything. What
it does touch is told: offsets are times, and cannot go back with the clock; until the wall has
come to them again each is the one before plus one (``perdure_clock_offset_lead_seconds``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.dispatch.dispatcher import OffsetAdvance
from perdure.clock import PLAUSIBLE_US, STEP_US_MIN, ClockState
from perdure.model import InboxEntry

if TYPE_CHECKING:
    from perdure.broker.runtime.scheduler import Timer
    from perdure.broker.services import Services
    from perdure.storage.contract import Database

LOOK_INTERVAL_US: Final = 5_000_000
KEEP_INTERVAL_US: Final = 60_000_000
"""After a kill, what had expired since the clock was kept last is counted down again at most."""


class ClockMemory(Protocol):
    """Where the steady clock survives the process."""

    def load(self) -> ClockState | None:
        """What was kept; None = nothing that could be read."""
        ...

    def save(self, state: ClockState) -> None:
        """Keep it; a failure costs no more than the memory."""
        ...


def kept_clock(memory: ClockMemory | None, database: Database) -> ClockState | None:
    """What the process before has left of its clock; None = there was none.

    Without its own word the newest generation tells that the time had come so far at least: what
    a clock that was ahead has stored is late then, and not for as long as that was ahead.
    """
    kept = memory.load() if memory is not None else None
    if kept is not None:
        return kept
    begun_us = database.generations()[-1].created_at_us
    return ClockState(begun_us) if begun_us >= PLAUSIBLE_US else None


@final
class ClockWatch:
    """Watches the wall clock.

    Args:
        services: the parts of the broker.
        memory: where the time is kept; None = nowhere.
        kept: what was found there.
    """

    def __init__(
        self, services: Services, memory: ClockMemory | None, kept: ClockState | None
    ) -> None:
        self._services = services
        self._memory = memory
        self._logged_skew_us: int = kept.skew_us if kept is not None else services.clock.skew_us
        self._kept_us: int = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Say what is wrong with the clock now, and look again and again."""
        services = self._services
        clock = services.clock
        wall_us = clock.wall_us()
        if wall_us < PLAUSIBLE_US:
            services.log.warning(
                "clock.not_set",
                hint="times in the log are wrong until it is; no deadline passes when it is set",
            )
        if abs(clock.skew_us - self._logged_skew_us) >= STEP_US_MIN:
            self._remember()
        lead_us = self.lead_us()
        if lead_us >= STEP_US_MIN:
            services.log.warning(
                "clock.behind_log",
                behind_s=_seconds(lead_us),
                hint="the clock was ahead when the log was written, or is behind now: offsets are "
                "ahead of it until it comes to them; expiry and retention go on",
            )
        self._keep()
        self._look_later()

    def stop(self) -> None:
        """Look no more, and keep the time for the next process."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keep()

    def lead_us(self) -> int:
        """What the newest offset is ahead of the wall clock; 0 = it is not."""
        services = self._services
        return max(0, services.database.last_offset - services.clock.wall_us())

    def look(self) -> None:
        """Look at the wall clock now; a step is told and remembered."""
        services = self._services
        clock = services.clock
        clock.look()
        step_us = clock.skew_us - self._logged_skew_us
        if abs(step_us) >= STEP_US_MIN:
            self._remember()
            direction = "forward" if step_us > 0 else "back"
            if step_us > 0:
                services.metrics.clock_steps_forward += 1
            else:
                services.metrics.clock_steps_back += 1
            services.log.warning(
                "clock.stepped",
                direction=direction,
                by_s=_seconds(abs(step_us)),
                offsets_ahead_s=_seconds(self.lead_us()),
                hint="it was set, or the machine was suspended; no deadline has moved",
            )
            self._keep()
        elif clock.monotonic_us() - self._kept_us >= KEEP_INTERVAL_US:
            self._keep()

    def _remember(self) -> None:
        """Draw a line in the log: what has a greater offset came after the step."""
        services = self._services
        line = InboxEntry(0, None, qos=1)
        services.committer.batch.place(line)
        services.pipeline.dispatch_placed(OffsetAdvance(line))
        services.pipeline.run()
        # A log that is elsewhere has not given it back yet: what is on its way is counted as later.
        offset = line.offset or services.database.last_offset + 1
        services.clock.stepped(offset, self._logged_skew_us)
        self._logged_skew_us = services.clock.skew_us

    def _look_later(self) -> None:
        self._timer = self._services.scheduler.call_later(LOOK_INTERVAL_US, self._timer_over)

    def _timer_over(self) -> None:
        self.look()
        self._look_later()

    def _keep(self) -> None:
        services = self._services
        self._kept_us = services.clock.monotonic_us()
        if self._memory is None:
            return
        if services.committer.writable:
            services.clock.forget(services.database.generations()[0].since_offset)
        self._memory.save(services.clock.state())


def _seconds(us: int) -> float:
    return round(us / 1_000_000, 1)
