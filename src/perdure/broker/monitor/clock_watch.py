"""Notices that the wall clock is set, says so, and hands the broker's time to the next process.

All deadlines go by the steady clock (``clock.SteadyClock``), so a step costs nobody anything. What
it does touch is told: offsets are times, and cannot go back with the clock; until the wall has
come to them again each is the one before plus one (``perdure_clock_offset_lead_seconds``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.dispatch.items import OffsetAdvance
from perdure.clock import PLAUSIBLE_US, STEP_US_MIN, ClockState
from perdure.model import InboxEntry

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.runtime.scheduler import Timer
    from perdure.storage.contract import Database

LOOK_INTERVAL_US: Final = 5_000_000
TIME_OFF_US_MIN: Final = 3_600_000_000
"""Less time between two processes is not told."""

KEEP_INTERVAL_US: Final = 10_000_000
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
        core: what every part stands on.
        memory: where the time is kept; None = nowhere.
        kept: what was found there.
    """

    def __init__(
        self, core: BrokerCore, memory: ClockMemory | None, kept: ClockState | None
    ) -> None:
        self._core = core
        self._memory = memory
        self._kept = kept
        self._logged_skew_us: int = kept.skew_us if kept is not None else core.clock.skew_us
        self._kept_us: int = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Say what is wrong with the clock now, and look again and again."""
        core = self._core
        clock = core.clock
        wall_us = clock.wall_us()
        if wall_us < PLAUSIBLE_US:
            core.log.warning(
                "clock.not_set",
                hint="times in the log are wrong until it is; no deadline passes when it is set",
            )
        self._say_time_off()
        if abs(clock.skew_us - self._logged_skew_us) >= STEP_US_MIN:
            self._stepped("while the broker was off; no deadline has moved")
        lead_us = self.lead_us()
        if lead_us >= STEP_US_MIN:
            core.log.warning(
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
        core = self._core
        return max(0, core.database.last_offset - core.clock.wall_us())

    def look(self) -> None:
        """Look at the wall clock now; a step is told and remembered."""
        core = self._core
        clock = core.clock
        clock.look()
        if abs(clock.skew_us - self._logged_skew_us) >= STEP_US_MIN:
            self._stepped("it was set, or the machine was suspended; no deadline has moved")
            self._keep()
        elif clock.monotonic_us() - self._kept_us >= KEEP_INTERVAL_US:
            self._keep()

    def _say_time_off(self) -> None:
        """Tell how much time has passed by the wall alone: it cannot be told from a clock that was
        behind in the last run."""
        kept = self._kept
        if kept is None or kept.elapsed_us is not None:
            return
        core = self._core
        passed_us = core.clock.now_us() - kept.steady_us
        if passed_us >= TIME_OFF_US_MIN:
            core.log.warning(
                "clock.time_off",
                counted_s=_seconds(passed_us),
                hint="the broker was off so long, by the machine's clock, and everything that "
                "counts down has counted it; if it was not, that clock was behind in the last run, "
                "and sessions, messages and generations end early by the difference",
            )

    def _stepped(self, hint: str) -> None:
        core = self._core
        step_us = core.clock.skew_us - self._logged_skew_us
        self._remember()
        direction = "forward" if step_us > 0 else "back"
        if step_us > 0:
            core.metrics.clock_steps_forward += 1
        else:
            core.metrics.clock_steps_back += 1
        core.log.warning(
            "clock.stepped",
            direction=direction,
            by_s=_seconds(abs(step_us)),
            offsets_ahead_s=_seconds(self.lead_us()),
            hint=hint,
        )

    def _remember(self) -> None:
        """Draw a line in the log: what has a greater offset came after the step."""
        core = self._core
        line = InboxEntry(0, None, qos=1)
        core.committer.batch.place(line)
        core.pipeline.dispatch_placed(OffsetAdvance(line))
        core.pipeline.run()
        # A log that is elsewhere has not given it back yet: what is on its way is counted as later.
        offset = line.offset or core.database.last_offset + 1
        core.clock.stepped(offset, self._logged_skew_us)
        self._logged_skew_us = core.clock.skew_us

    def _look_later(self) -> None:
        self._timer = self._core.scheduler.call_later(LOOK_INTERVAL_US, self._timer_over)

    def _timer_over(self) -> None:
        self.look()
        self._look_later()

    def _keep(self) -> None:
        core = self._core
        self._kept_us = core.clock.monotonic_us()
        if self._memory is None:
            return
        if core.committer.writable:
            core.clock.forget(core.database.since_offset)
        self._memory.save(core.clock.state())


def _seconds(us: int) -> float:
    return round(us / 1_000_000, 1)
