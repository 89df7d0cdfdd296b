"""How the jobs of pipelines are going: ``pipelines/<name>.<place>.run`` in the data directory.

``pipeline run`` keeps its state beside its archive, which may be in a store that only it can reach.
It tells the log that it reads as well, as it does of its cursor, so that a broker can show it
without a library of that store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from perdure.storage.cursors import check_pipeline, file_name, keep_file, listed

SUFFIX: Final = "run"
ERROR_CHARACTERS_MAX: Final = 500
HOLDER_CHARACTERS_MAX: Final = 500
JOBS_MAX: Final = 16


class JobState(msgspec.Struct):
    """One job.

    Attributes:
        runs, failures: since the state was begun.
        started_at_us, ended_at_us, succeeded_at_us: wall time of the last one; 0 = none yet.
        seconds: that the last run took.
        last_error: of the last failure; empty = none since the last success.
        every_s: pause between two runs; 0 = it is off.
        due_at_us: wall time of the next run; 0 = not known.
        unreachable_since_us: wall time since when it waits for a catalog, a store or a log that
            cannot be reached, as ``last_error`` says; 0 = it does not.
    """

    runs: int = 0
    failures: int = 0
    started_at_us: int = 0
    ended_at_us: int = 0
    succeeded_at_us: int = 0
    seconds: float = 0.0
    last_error: Annotated[str, Meta(max_length=ERROR_CHARACTERS_MAX)] = ""
    every_s: float = 0.0
    due_at_us: int = 0
    unreachable_since_us: int = 0


class RunState(msgspec.Struct):
    """All of it.

    Attributes:
        holder: that wrote this.
        epoch: of its lease.
        written_at_us: wall time.
        rows, files, misfits, gaps: of the archive, since the state was begun.
        offset: up to which the archive has the log; 0 = not known.
        behind_us: from there to the end of the log; -1 = it was not looked at yet.
        behind_messages: in between; -1 = likewise.
        behind_is_bound: there are more than ``behind_messages``.
        jobs: by name.
    """

    holder: Annotated[str, Meta(max_length=HOLDER_CHARACTERS_MAX)] = ""
    epoch: int = 0
    written_at_us: int = 0
    rows: int = 0
    files: int = 0
    misfits: int = 0
    gaps: int = 0
    offset: int = 0
    behind_us: int = -1
    behind_messages: int = -1
    behind_is_bound: bool = False
    jobs: Annotated[dict[str, JobState], Meta(max_length=JOBS_MAX)] = msgspec.field(
        default_factory=dict
    )

    def schedule(self, every_s: dict[str, float], now_us: int) -> None:
        """These jobs are on, with their pauses, and due now; all others are off."""
        for job in self.jobs.values():
            job.every_s, job.due_at_us, job.unreachable_since_us = 0.0, 0, 0
        for name, pause in every_s.items():
            job = self.jobs.setdefault(name, JobState())
            job.every_s, job.due_at_us = pause, now_us

    def begin(self, name: str, now_us: int) -> JobState:
        """A job begins."""
        job = self.jobs.setdefault(name, JobState())
        job.started_at_us = now_us
        return job

    def wait(self, name: str, now_us: int, error: str) -> None:
        """A job waits for what it cannot reach."""
        job = self.jobs.setdefault(name, JobState())
        job.last_error = error[:ERROR_CHARACTERS_MAX]
        job.unreachable_since_us = job.unreachable_since_us or now_us

    def reached(self, name: str) -> None:
        """What a job waited for is there."""
        self.jobs.setdefault(name, JobState()).unreachable_since_us = 0

    def end(self, name: str, now_us: int, error: str = "", *, due_at_us: int = 0) -> None:
        """A job has ended."""
        job = self.jobs.setdefault(name, JobState())
        job.runs += 1
        job.unreachable_since_us = 0
        job.ended_at_us = now_us
        job.due_at_us = due_at_us
        job.seconds = max(0, now_us - job.started_at_us) / 1e6
        job.last_error = error[:ERROR_CHARACTERS_MAX]
        if error:
            job.failures += 1
        else:
            job.succeeded_at_us = now_us


class PipelineRun(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        name, place: as of the pipeline's cursor.
        state: how it is going.
    """

    name: str
    place: str
    state: RunState


def save_report(data: Path, run: PipelineRun) -> None:
    """Keep how a pipeline is going; replaces the one with its name and place.

    Raises:
        ConfigError: its name or place cannot be used, or there are too many.
        StorageUnavailable: the directory takes no writes.
    """
    check_pipeline(run.name, run.place)
    name = file_name(run.name, run.place, SUFFIX)
    keep_file(data, name, msgspec.json.encode(run) + b"\n")


def load_reports(data: Path) -> list[PipelineRun]:
    """Every one that can be read, by name and place.

    Raises:
        StorageUnavailable: they cannot be listed.
    """
    found: list[PipelineRun] = []
    for path in listed(data, f"*.{SUFFIX}"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=PipelineRun))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda each: (each.name, each.place))
