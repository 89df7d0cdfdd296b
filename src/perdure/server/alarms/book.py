"""Which alarms are raised, with a delay at both ends so that none comes and goes.

::

    well --at the threshold for raise_after--> raised --at 4/5 of it for clear_after--> well

Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, final

import msgspec

HISTORY_MAX: Final = 200
"""Alarms that have ended and are remembered."""

CLEAR_SHARE: Final = 0.8
"""Of the threshold: an alarm ends there, not where it began."""


@final
class Reading(msgspec.Struct, frozen=True):
    """What was found for one alarm.

    Attributes:
        value: now.
        threshold: from here on it is raised; 0 = never.
        message: for operators.
    """

    value: float
    threshold: float
    message: str


@final
class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm that is, or was, raised.

    Attributes:
        name: what of.
        message: for operators, as of the last look.
        value, threshold: in the unit of the setting.
        raised_us: wall time.
        cleared_us: wall time; 0 = it is raised.
    """

    name: str
    message: str
    value: float
    threshold: float
    raised_us: int
    cleared_us: int = 0


@final
class AlarmBook:
    """Keeps the alarms.

    Attributes:
        raised: by name.
        ended: the last ones, oldest first.
    """

    def __init__(self) -> None:
        self.raised: dict[str, Alarm] = {}
        self.ended: deque[Alarm] = deque(maxlen=HISTORY_MAX)
        self._since: dict[str, int] = {}

    def look(
        self,
        readings: Mapping[str, Reading],
        *,
        now_us: int,
        wall_us: int,
        raise_after_us: int,
        clear_after_us: int,
    ) -> list[Alarm]:
        """Take what was found; returns the alarms that were raised or cleared by it.

        Args:
            readings: by name of the alarm; one that is missing is well.
            now_us: monotonic.
            wall_us: for the records.
            raise_after_us, clear_after_us: how long it must last.
        """
        changed = []
        for name in {*readings, *self.raised, *self._since}:
            reading = readings.get(name, Reading(0, 0, ""))
            alarm = self.raised.get(name)
            if alarm is None:
                turned = reading.threshold > 0 and reading.value >= reading.threshold
            else:
                turned = not reading.threshold or reading.value <= reading.threshold * CLEAR_SHARE
                if not turned:
                    self.raised[name] = alarm = _as_of(alarm, reading)
            if not turned:
                self._since.pop(name, None)
                continue
            wait_us = raise_after_us if alarm is None else clear_after_us
            if now_us - self._since.setdefault(name, now_us) < wait_us:
                continue
            del self._since[name]
            changed.append(self._turn(name, alarm, reading, wall_us))
        return changed

    def _turn(self, name: str, alarm: Alarm | None, reading: Reading, wall_us: int) -> Alarm:
        if alarm is None:
            raised = Alarm(
                name=name,
                message=reading.message,
                value=reading.value,
                threshold=reading.threshold,
                raised_us=wall_us,
            )
            self.raised[name] = raised
            return raised
        del self.raised[name]
        cleared = msgspec.structs.replace(alarm, cleared_us=wall_us)
        self.ended.append(cleared)
        return cleared


def _as_of(alarm: Alarm, reading: Reading) -> Alarm:
    return msgspec.structs.replace(
        alarm, message=reading.message, value=reading.value, threshold=reading.threshold
    )
