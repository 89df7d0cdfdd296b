"""``perdure pipeline archive``: the log into tables, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.archive_place import archive_lake, make_place, to_option
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output, output_options
from perdure.cli.pipeline_options import (
    From,
    executor,
    log_options,
    opened_log,
    pipeline_installed,
    read_options,
    topic_options,
)
from perdure.config.units import format_time, parse_duration
from perdure.errors import ConfigError
from perdure.pipeline.sinks.formats import SINKS
from perdure.storage.cursors import check_name

if TYPE_CHECKING:
    from perdure.pipeline.archive_file import Gap
    from perdure.pipeline.jobs.archive import Round
    from perdure.pipeline.jobs.archive_runs import ArchivePlan, ArchiveRuns

COLUMNS_SHOWN: Final = 8


def _name(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else check_name(text)
    except ConfigError as error:
        raise click.BadParameter(error.message, param=option) from error


@click.command()
@log_options
@topic_options
@to_option
@click.option(
    "--name",
    callback=_name,
    metavar="NAME",
    help="Of this archive, for the broker's retention.keep_for; else pipeline.archive.name.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(SINKS)),
    help="Of the tables; else pipeline.tables.format (iceberg).",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="NAME=PATTERN",
    help="A table for the topics of a pattern; levels in {braces} become columns. May be "
    "repeated; the first that matches gets a message, the table messages gets the rest.",
)
@click.option(
    "--tables",
    "tables_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Tables from a file: a proposal of pipeline learn, or JSON with tables: {name: pattern}.",
)
@click.option(
    "--learned/--no-learned",
    "learns",
    default=None,
    help="Tables for the topic structures that the log has learned, too; else "
    "pipeline.archive.learned (yes).",
)
@click.option(
    "--fields/--no-fields",
    "has_fields",
    default=None,
    help="Fields of payloads as columns; else pipeline.archive.fields (yes).",
)
@click.option("--catalog", metavar="NAME", help="Iceberg catalog; else the one of pipeline.tables.")
@click.option("--once", is_flag=True, help="End when the end of the log is reached.")
@click.option(
    "--every", metavar="DURATION", help="Pause between rounds; else pipeline.archive.every_s (1m)."
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="How long catalog, store or log are waited for while they are away; for ever if not "
    "given, and not at all with --once.",
)
@click.option(
    "--on-data-loss",
    type=click.Choice(["fail", "skip"]),
    help="What to do if messages were dropped before they were archived: fail, or go on behind "
    "them, and end with exit code 65; else pipeline.archive.on_data_loss (fail).",
)
@output_options
def archive(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    master: str | None,
    memory: str | None,
    once: bool,
    every: str | None,
    wait: str | None,
    out: Output,
    **given: Any,
) -> None:
    """Copy the log into tables, exactly once; goes on where it ended.

    Ends with exit code 65 if messages were dropped before they were archived.
    """
    settings = log.pipeline
    if given["catalog"] is not None and given["kind"] not in {None, "iceberg"}:
        raise click.UsageError("--catalog is for --format iceberg")
    pause_s = _duration_s("--every", every) or float(settings.archive.every_s) or 60.0
    patience_s = _duration_s("--wait", wait)
    if patience_s is None and once:
        patience_s = 0.0
    planned = plan_of(log, filters=filters, since=since, **given)
    make_place(planned.lake, None if log.url else log.data)
    with pipeline_installed():
        from perdure.pipeline.cursor import CursorKeeper
        from perdure.pipeline.jobs.archive_runs import ArchiveRuns

    with opened_log(planned.options):
        pass  # It can be read.
    name = given["name"] or settings.archive.name
    with executor(settings, "archive", master=master, memory=memory) as (execute, shown):
        runs = ArchiveRuns(
            planned,
            execute=execute,
            on_position=CursorKeeper(planned.options, name, planned.lake.place, warn=_warn),
            on_away=_away,
            wait=_wait,
        )
        try:
            _run(runs, out, shown, pause_s=None if once else pause_s, patience_s=patience_s)
        finally:
            runs.close()


def plan_of(
    log: From,
    *,
    filters: tuple[str, ...] = (),
    since: str | None = None,
    to: str = "",
    kind: str | None = None,
    catalog: str | None = None,
    tables: tuple[str, ...] = (),
    tables_file: Path | None = None,
    learns: bool | None = None,
    has_fields: bool | None = None,
    on_data_loss: str | None = None,
    **_: object,
) -> ArchivePlan:
    """What an archive does: the configuration, with what the command line says instead.

    Raises:
        CommandFailed: something in it cannot be used.
    """
    with pipeline_installed():
        from perdure.pipeline.jobs.archive import Wanted
        from perdure.pipeline.jobs.archive_runs import ArchivePlan
        from perdure.pipeline.payload_rules import rule_of
        from perdure.pipeline.tables import parse_tables, read_tables

    settings = log.pipeline.archive
    lake = archive_lake(log.pipeline.tables, to, kind=kind, catalog=catalog)
    options = read_options(
        log,
        filters or settings.topics,
        **{"from": since, "onDataLoss": on_data_loss or settings.on_data_loss},
    )
    named = (*tables, *(read_tables(tables_file) if tables_file else ())) or settings.tables
    specs = parse_tables(named)
    wanted = Wanted(
        specs[:-1],
        settings.learned if learns is None else learns,
        settings.fields if has_fields is None else has_fields,
        payloads=tuple(map(rule_of, log.pipeline.payloads)),
    )
    return ArchivePlan(options, lake, wanted, settings.rows_per_round)


def _duration_s(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text, "us") / 1_000_000
    except ValueError as error:
        raise click.BadParameter(f"{option}: {error}") from error


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _away(error: Exception) -> None:
    _warn(f"{error}; waiting")


def _run(
    job: ArchiveRuns,
    out: Output,
    shown: Callable[[str], AbstractContextManager[None]],
    *,
    pause_s: float | None,
    patience_s: float | None,
) -> None:
    """Round after round; without a pause, to the end of the log."""
    rows = files = misfits = 0
    tables: dict[str, None] = {}
    gaps: list[Gap] = []
    while True:
        begun = time.monotonic()
        with shown("archiving"):
            done = _round(job, patience_s)
        rows, files, misfits = rows + done.rows, files + done.files, misfits + done.misfits
        tables |= dict.fromkeys(done.tables)
        if done.gap is not None:
            gaps.append(done.gap)
        _report(done, time.monotonic() - begun)
        if done.is_last:
            if pause_s is None:
                break
            time.sleep(pause_s)
    out.record(
        {
            "rows": rows,
            "files": files,
            "tables": list(tables) if out.is_json else len(tables),
            "misfits": misfits,
            "through_offset": done.position.offset,
            "through": format_time(done.position.offset),
            "behind_s": done.behind_us / 1_000_000,
            "gaps": [msgspec.to_builtins(gap) for gap in gaps] if out.is_json else len(gaps),
        }
    )
    if gaps:
        raise CommandFailed(
            "messages were dropped before they were archived",
            ExitCode.DATA,
            hint="archive.json has them as gaps; set retention.keep_for to archive in the broker's "
            "configuration so that it waits",
        )


def _round(job: ArchiveRuns, patience_s: float | None) -> Round:
    """One round; what was dropped before it ends the command."""
    from perdure.pipeline.offsets import DATA_LOSS

    try:
        done = job.run_round(patience_s=patience_s)
        assert done is not None, "nobody tells this one to stop"
        return done
    except ConfigError as error:
        if error.path != DATA_LOSS:
            raise
        raise CommandFailed(
            error.message,
            ExitCode.DATA,
            hint="--on-data-loss skip goes on behind them; retention.keep_for in the broker's "
            "configuration has the log wait",
        ) from error


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def _report(done: Round, seconds: float) -> None:
    """What a round did, and what it found missing."""
    if done.gap is not None:
        first, last = format_time(done.gap.after_offset), format_time(done.gap.until_offset)
        _warn(f"messages after {first}, through {last}, were dropped before they were archived")
    if done.is_close:
        _warn("retention dropped messages that had just been read: the archive is nearly too late")
    if not done.rows:
        return
    rate = done.rows / max(seconds, 1e-9)
    behind = "" if done.is_last else ", more to come"
    click.echo(
        f"archived {done.rows} messages in {done.files} files, through "
        f"{format_time(done.position.offset)} ({rate:,.0f}/s{behind})",
        err=True,
    )
    if done.columns:
        shown = ", ".join(done.columns[:COLUMNS_SHOWN])
        more = len(done.columns) - COLUMNS_SHOWN
        click.echo(f"new columns: {shown}{f' and {more} more' if more > 0 else ''}", err=True)
