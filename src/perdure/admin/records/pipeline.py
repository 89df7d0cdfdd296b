"""Pipelines that read the log: how far they are, and how the jobs of ``pipeline run`` are going."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.admin.limits import Cursor, Limit
from perdure.admin.operation import Http, Operation, Page, Request

JobPhase: TypeAlias = Literal["off", "waiting", "running", "unreachable", "failing", "overdue"]


@final
class PipelineJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a pipeline.

    Attributes:
        name: ``archive``, ``maintain``, ``learn`` or ``stats``.
        state: ``off`` (no schedule), ``waiting`` for its next run, ``running``, ``unreachable`` (it
            waits for a catalog, a store or a log, as ``last_error`` says), ``failing`` (the last
            run failed; it is tried again), or ``overdue``: it should have begun and has not, or
            nothing was heard of it while it ran, so that nobody seems to work.
        every_s: pause between two runs; 0 = it is off.
        runs, failures: since the state was begun.
        started_at, started_at_us, ended_at, ended_at_us, succeeded_at, succeeded_at_us: of the last
            one; null = none yet.
        due_at, due_at_us: when the next one begins; null = not known.
        seconds: that the last run took.
        unreachable_since, unreachable_since_us: when it began to wait for what it cannot reach;
            null = it does not.
        last_error: of the last failure; empty = none since the last success.
    """

    name: str
    state: JobPhase
    every_s: float
    runs: int
    failures: int
    started_at: str | None
    started_at_us: int | None
    ended_at: str | None
    ended_at_us: int | None
    succeeded_at: str | None
    succeeded_at_us: int | None
    due_at: str | None
    due_at_us: int | None
    seconds: float
    unreachable_since: str | None
    unreachable_since_us: int | None
    last_error: str


@final
class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline: something that reads the log and writes to a place.

    Attributes:
        name: by which ``retention.keep_for`` knows it.
        place: what it writes to.
        through, through_us: it has everything up to this moment; null = nothing yet.
        moved_at, moved_at_us: when it said so.
        behind_s: from there to the end of the log; null = not known.
        behind_messages: in between, as it counted when it told of itself; null = not known.
        behind_is_bound: there are more than that.
        holder, epoch: who works, and the number of its lease; empty and 0 = it is run by hand.
        seen_at, seen_at_us: when it last told of itself; null = never.
        rows, files, misfits, gaps: written to tables; values without a column of their type;
            ranges that were dropped before they were read. Null = it is run by hand.
        jobs: by name; none = it is run by hand.
    """

    name: str
    place: str
    through: str | None
    through_us: int | None
    moved_at: str | None
    moved_at_us: int | None
    behind_s: float | None
    behind_messages: int | None
    behind_is_bound: bool
    holder: str
    epoch: int
    seen_at: str | None
    seen_at_us: int | None
    rows: int | None
    files: int | None
    misfits: int | None
    gaps: int | None
    jobs: list[PipelineJob]


@final
class PipelinePage(Page[Pipeline], frozen=True, kw_only=True):
    """A page of pipelines, by name and place."""


class ListPipelines(Request[PipelinePage], frozen=True, kw_only=True):
    """Pipelines that have told this broker of themselves, with their jobs."""

    limit: Limit = 100
    cursor: Cursor = ""


OPERATIONS: Final = (
    Operation(
        name="pipeline.jobs",
        summary="Pipelines that read the log, and their jobs",
        request=ListPipelines,
        result=PipelinePage,
        http=Http("GET", "/pipeline/jobs"),
    ),
)
