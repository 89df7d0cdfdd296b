"""How a pipeline's jobs are going: ``run.json`` beside the archive, for status and metrics."""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.errors import PerdureError
from perdure.pipeline.lake.stores import Store, below

NAME: Final = "run.json"
ERROR_CHARACTERS_MAX: Final = 500


class JobState(msgspec.Struct):
    """One job.

    Attributes:
        runs, failures: since the state was begun.
        started_at_us, ended_at_us, succeeded_at_us: wall time of the last one; 0 = none yet.
        seconds: that the last run took.
        last_error: of the last failure; empty = none since the last success.
    """

    runs: int = 0
    failures: int = 0
    started_at_us: int = 0
    ended_at_us: int = 0
    succeeded_at_us: int = 0
    seconds: float = 0.0
    last_error: str = ""


class RunState(msgspec.Struct):
    """All of it.

    Attributes:
        holder: that wrote this.
        epoch: of its lease.
        written_at_us: wall time.
        rows, files, misfits, gaps: of the archive, since the state was begun.
        behind_us: from the archive's position to the end of the log; -1 = not known.
        behind_messages: in between; -1 = not known.
        behind_is_bound: there are more than ``behind_messages``.
        jobs: by name.
    """

    holder: str = ""
    epoch: int = 0
    written_at_us: int = 0
    rows: int = 0
    files: int = 0
    misfits: int = 0
    gaps: int = 0
    behind_us: int = -1
    behind_messages: int = -1
    behind_is_bound: bool = False
    jobs: dict[str, JobState] = msgspec.field(default_factory=dict)

    def begin(self, name: str, now_us: int) -> JobState:
        """A job begins."""
        job = self.jobs.setdefault(name, JobState())
        job.started_at_us = now_us
        return job

    def end(self, name: str, now_us: int, error: str = "") -> None:
        """A job has ended."""
        job = self.jobs.setdefault(name, JobState())
        job.runs += 1
        job.ended_at_us = now_us
        job.seconds = max(0, now_us - job.started_at_us) / 1e6
        job.last_error = error[:ERROR_CHARACTERS_MAX]
        if error:
            job.failures += 1
        else:
            job.succeeded_at_us = now_us


def load_run(place: str, store: Store) -> RunState | None:
    """The state beside an archive; None = there is none that can be read."""
    try:
        return msgspec.json.decode(store.read(below(place, NAME)), type=RunState)
    except (FileNotFoundError, msgspec.DecodeError, PerdureError):
        return None


def save_run(place: str, store: Store, state: RunState) -> None:
    """Replace it."""
    store.write(below(place, NAME), msgspec.json.encode(state))
