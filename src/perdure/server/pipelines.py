"""What a broker knows of the pipelines that read its log, as it is shown.

They leave it in the data directory, themselves or through the HTTP interface: ``storage.cursors``
and ``storage.pipeline_runs``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

from perdure.admin.records.pipeline import JobPhase, Pipeline, PipelineJob
from perdure.config.units import format_time
from perdure.storage.cursors import PipelineCursor, load_cursors
from perdure.storage.pipeline_runs import JobState, PipelineRun, RunState, load_reports

OVERDUE_US: Final = 60_000_000
"""A job that has not begun for so long after it was due is overdue; jobs run one after another, so
one may wait for another that takes longer: while one runs, none is overdue. Who runs one tells of
itself four times in that time; who has told nothing for so long does not run it any more."""

Key: TypeAlias = tuple[str, str]
"""Name and place."""


def load_pipelines(data: Path) -> tuple[dict[Key, PipelineCursor], dict[Key, PipelineRun]]:
    """What is in a data directory, by name and place.

    Raises:
        StorageUnavailable: it cannot be listed.
    """
    cursors, _ = load_cursors(data)
    return (
        {(each.name, each.place): each for each in cursors},
        {(each.name, each.place): each for each in load_reports(data)},
    )


def pipeline_of(
    name: str,
    place: str,
    cursor: PipelineCursor | None,
    run: PipelineRun | None,
    *,
    end: int,
    now_us: int,
) -> Pipeline:
    """What is shown of a pipeline.

    Args:
        name, place: its key.
        cursor: what it has told of its position; None = nothing.
        run: what it has told of its jobs; None = nothing.
        end: the last offset of the log.
        now_us: wall time.
    """
    state = None if run is None else run.state
    is_counted = state is not None and state.behind_messages >= 0
    behind_us = max(0, end - cursor.offset) if cursor else state.behind_us if state else -1
    return Pipeline(
        name=name,
        place=place,
        through=format_time(cursor.offset if cursor else 0),
        through_us=(cursor.offset or None) if cursor else None,
        moved_at=format_time(cursor.moved_at_us if cursor else 0),
        moved_at_us=cursor.moved_at_us if cursor else None,
        behind_s=behind_us / 1e6 if behind_us >= 0 else None,
        behind_messages=state.behind_messages if state and is_counted else None,
        behind_is_bound=state is not None and state.behind_is_bound,
        holder=state.holder if state else "",
        epoch=state.epoch if state else 0,
        seen_at=format_time(state.written_at_us if state else 0),
        seen_at_us=(state.written_at_us or None) if state else None,
        rows=state.rows if state else None,
        files=state.files if state else None,
        misfits=state.misfits if state else None,
        gaps=state.gaps if state else None,
        jobs=_jobs(state, now_us) if state else [],
    )


def _jobs(state: RunState, now_us: int) -> list[PipelineJob]:
    is_heard = now_us <= state.written_at_us + OVERDUE_US
    is_busy = is_heard and any(_is_begun(job) for job in state.jobs.values())
    return [
        _job(name, job, _phase(job, now_us, is_busy=is_busy, is_heard=is_heard))
        for name, job in sorted(state.jobs.items())
    ]


def _job(name: str, job: JobState, phase: JobPhase) -> PipelineJob:
    return PipelineJob(
        name=name,
        state=phase,
        every_s=job.every_s,
        runs=job.runs,
        failures=job.failures,
        started_at=format_time(job.started_at_us),
        started_at_us=job.started_at_us or None,
        ended_at=format_time(job.ended_at_us),
        ended_at_us=job.ended_at_us or None,
        succeeded_at=format_time(job.succeeded_at_us),
        succeeded_at_us=job.succeeded_at_us or None,
        due_at=format_time(job.due_at_us),
        due_at_us=job.due_at_us or None,
        seconds=round(job.seconds, 3),
        unreachable_since=format_time(job.unreachable_since_us),
        unreachable_since_us=job.unreachable_since_us or None,
        last_error=job.last_error,
    )


def _is_begun(job: JobState) -> bool:
    return job.started_at_us > job.ended_at_us


def _phase(job: JobState, now_us: int, *, is_busy: bool, is_heard: bool) -> JobPhase:
    if not job.every_s:
        return "off"
    if job.unreachable_since_us or _is_begun(job):
        if not is_heard:
            return "overdue"
        return "unreachable" if job.unreachable_since_us else "running"
    if not is_busy and job.due_at_us and now_us > job.due_at_us + OVERDUE_US:
        return "overdue"
    return "failing" if job.last_error else "waiting"
