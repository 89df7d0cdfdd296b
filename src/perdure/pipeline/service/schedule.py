"""Which job is due. Pure: time comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec


class Job(msgspec.Struct, frozen=True):
    """A job and its pause, from the end of one run to the begin of the next."""

    name: str
    every_s: float


@final
class Schedule:
    """Jobs by when they are due; the first of several comes first.

    Args:
        jobs: those with a pause of 0 are off. All are due at once.
        now_s: monotonic.
    """

    def __init__(self, jobs: Sequence[Job], now_s: float) -> None:
        self._jobs = [job for job in jobs if job.every_s > 0]
        self._due = {job.name: now_s for job in self._jobs}

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs that are on."""
        return tuple(job.name for job in self._jobs)

    @property
    def pauses(self) -> dict[str, float]:
        """Seconds between runs, of the jobs that are on."""
        return {job.name: job.every_s for job in self._jobs}

    def due_in_s(self, name: str, now_s: float) -> float:
        """How long until a job is due; 0 = it is."""
        return max(0.0, self._due[name] - now_s)

    def due(self, now_s: float) -> str | None:
        """The job to run now; None = none is due."""
        waiting = [job.name for job in self._jobs if self._due[job.name] <= now_s]
        return min(waiting, key=lambda name: self._due[name]) if waiting else None

    def rest_s(self, now_s: float) -> float:
        """How long until a job is due."""
        return max(0.0, min(self._due.values(), default=now_s + 60.0) - now_s)

    def ended(self, name: str, now_s: float, *, has_more: bool = False) -> None:
        """A job has ended.

        Args:
            name: of the job.
            now_s: monotonic.
            has_more: it is due again at once.
        """
        pause = next(job.every_s for job in self._jobs if job.name == name)
        self._due[name] = now_s if has_more else now_s + pause
