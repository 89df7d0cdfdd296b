"""``perdure pipeline status``: how far pipelines have read the log, and what they have missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import From, log_options, opened_index, read_options
from perdure.config.units import format_time
from perdure.errors import PerdureError, StorageUnavailable
from perdure.pipeline.archive_file import load_gaps
from perdure.pipeline.lake.lake import lake_of
from perdure.pipeline.service.state import read_run
from perdure.storage.cursors import PipelineCursor, forget_cursors, load_cursors
from perdure.storage.pipeline_runs import JobState, PipelineRun, RunState, load_reports

_COLUMNS = (
    Column("name"),
    Column("place"),
    Column("through"),
    Column("behind_s", right=True, tenths=True),
    Column("moved_at"),
    Column("gaps", right=True),
)
_JOB_COLUMNS = (
    Column("job"),
    Column("runs", right=True),
    Column("failures", right=True),
    Column("succeeded_at"),
    Column("seconds", right=True),
    Column("unreachable_since"),
    Column("last_error"),
)


@click.command()
@log_options
@click.option(
    "--forget",
    metavar="NAME",
    default="",
    help="Delete the cursors of this name: retention waits for them no more. With --place, one.",
)
@click.option("--place", metavar="PLACE", default="", help="For --forget: only the one there.")
@output_options
def status(log: From, forget: str, place: str, out: Output) -> None:
    """Show how far archives have read the log, for retention.keep_for.

    How far one is behind is a time: from what it has read to the end of the log. Gaps are messages
    that were dropped before it could read them, where its directory can be seen from here. Needs
    no Spark: where an archive in an object store cannot be read without perdure[spark], its jobs
    are shown as `pipeline run` has told the data directory.
    """
    if place and not forget:
        raise click.UsageError("--place is for --forget")
    if forget:
        _forget(log, forget, place)
        return
    options = read_options(log, ())
    with opened_index(options) as index:
        newest = index.newest()
    broken: list[str]
    if options.remote is None:
        found, broken = _cursors_of(log.data)
    else:
        from perdure.pipeline.remote import fetch_cursors

        fetched = fetch_cursors(options.remote)
        found, broken = list(fetched.items), list(fetched.broken)
    end = 0 if newest is None else newest.offset
    run_place, state = _run_of(log)
    rows = [_row(cursor, end) for cursor in found]
    if state is not None and out.is_json:
        for row in rows:
            if row["place"].endswith(run_place):
                row["run"] = msgspec.to_builtins(state)
    out.rows(_COLUMNS, rows)
    if state is not None and not out.is_json:
        _show_run(state, out)
    for name in broken:
        click.echo(f"warning: the cursor of {name} cannot be read", err=True)


def _cursors_of(data: Path) -> tuple[list[PipelineCursor], list[str]]:
    try:
        return load_cursors(data)
    except StorageUnavailable as error:
        click.echo(f"warning: {error.message}", err=True)
        return [], []


def _row(cursor: PipelineCursor, end: int) -> dict[str, Any]:
    return {
        "name": cursor.name,
        "place": cursor.place,
        "offset": cursor.offset,
        "through": format_time(cursor.offset),
        "behind_s": max(0, end - cursor.offset) / 1_000_000,
        "moved_at": format_time(cursor.moved_at_us),
        "gaps": _gaps(Path(cursor.place)),
    }


def _told(data: Path, place: str) -> PipelineRun | None:
    """What the pipeline of an archive has told the log that it reads."""
    return next((run for run in load_reports(data) if run.place.endswith(place)), None)


def _run_of(log: From) -> tuple[str, RunState | None]:
    """What `pipeline run` tells of itself, where the configuration names its archive."""
    tables = log.pipeline.tables
    if not tables.place:
        return "", None
    try:
        lake = lake_of(tables)
        return lake.place, read_run(lake.place, lake.store)
    except PerdureError as error:
        told = None if log.url else _told(log.data, tables.place)
        if told is not None:
            return told.place, told.state
        click.echo(f"warning: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
    return "", None


def _show_run(state: RunState, out: Output) -> None:
    more = "+" if state.behind_is_bound else ""
    is_counted, is_timed = state.behind_messages >= 0, state.behind_us >= 0
    out.text("\n")
    out.record(
        {
            "run_by": state.holder,
            "seen_at": format_time(state.written_at_us),
            "rows": state.rows,
            "misfits": state.misfits,
            "behind_messages": f"{state.behind_messages}{more}" if is_counted else None,
            "behind_s": state.behind_us / 1e6 if is_timed else None,
        }
    )
    out.text("\n")
    out.rows(_JOB_COLUMNS, [_job_row(name, job) for name, job in sorted(state.jobs.items())])


def _job_row(name: str, job: JobState) -> dict[str, Any]:
    return {
        "job": name,
        "runs": job.runs,
        "failures": job.failures,
        "succeeded_at": format_time(job.succeeded_at_us),
        "seconds": round(job.seconds, 1),
        "unreachable_since": format_time(job.unreachable_since_us),
        "last_error": job.last_error,
    }


def _gaps(place: Path) -> int | None:
    """Gaps of the archive in a directory; None = it cannot be seen from here."""
    try:
        gaps = load_gaps(place)
    except (OSError, PerdureError):
        return None
    return None if gaps is None else len(gaps)


def _forget(log: From, name: str, place: str) -> None:
    if log.url:
        raise click.UsageError("--forget is for a data directory")
    if not forget_cursors(log.data, name, place):
        raise CommandFailed(
            f"{log.data} has no cursor {name}{f' at {place}' if place else ''}",
            ExitCode.NOT_FOUND,
            hint="perdure pipeline status lists them",
        )
