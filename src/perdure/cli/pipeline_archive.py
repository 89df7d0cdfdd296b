"""``perdure pipeline archive``: the log into tables, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from perdure.cli.archive_place import archive_place, make_place
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output, output_options
from perdure.cli.pipeline_options import (
    From,
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
    from perdure.pipeline.archive_state import Gap
    from perdure.pipeline.jobs.archive import Archive, Round

EVERY: Final = "1m"
NAME: Final = "archive"
COLUMNS_SHOWN: Final = 8


def _name(_context: click.Context, option: click.Parameter, text: str) -> str:
    try:
        return check_name(text)
    except ConfigError as error:
        raise click.BadParameter(error.message, param=option) from error


@click.command()
@log_options
@topic_options
@click.option(
    "--to",
    callback=archive_place,
    required=True,
    metavar="DIR",
    help="Directory of the tables, or file:///DIR.",
)
@click.option(
    "--name",
    callback=_name,
    default=NAME,
    show_default=True,
    metavar="NAME",
    help="Of this archive, for the broker's retention.keep_for.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(SINKS)),
    default="iceberg",
    show_default=True,
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
    default=True,
    show_default=True,
    help="Tables for the topic structures that the log has learned, too.",
)
@click.option(
    "--fields/--no-fields",
    "has_fields",
    default=True,
    show_default=True,
    help="Fields of JSON payloads as columns.",
)
@click.option("--catalog", metavar="NAME", help="Iceberg catalog of your pyiceberg settings.")
@click.option("--once", is_flag=True, help="End when the end of the log is reached.")
@click.option(
    "--every", default=EVERY, show_default=True, metavar="DURATION", help="Pause between rounds."
)
@click.option(
    "--on-data-loss",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="What to do if messages were dropped before they were archived: fail, or go on behind "
    "them, and end with exit code 65.",
)
@output_options
def archive(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    master: str | None,
    memory: str,
    to: Path,
    name: str,
    kind: str,
    tables: tuple[str, ...],
    tables_file: Path | None,
    learns: bool,
    has_fields: bool,
    catalog: str | None,
    once: bool,
    every: str,
    on_data_loss: str,
    out: Output,
) -> None:
    """Copy the log into tables, exactly once; goes on where it ended.

    Ends with exit code 65 if messages were dropped before they were archived.
    """
    try:
        pause_s = parse_duration(every, "us") / 1_000_000
    except ValueError as error:
        raise click.BadParameter(f"--every: {error}") from error
    if catalog is not None and kind != "iceberg":
        raise click.UsageError("--catalog is for --format iceberg")
    options = read_options(log, filters, **{"from": since, "onDataLoss": on_data_loss})
    make_place(to, None if log.url else log.data)
    with pipeline_installed():
        from perdure.pipeline.cursor import CursorKeeper
        from perdure.pipeline.jobs.archive import Archive, Wanted
        from perdure.pipeline.session import build, progress
        from perdure.pipeline.sinks.opening import open_sink
        from perdure.pipeline.spark_jobs import SparkExecute
        from perdure.pipeline.tables import parse_tables, read_tables

        specs = parse_tables((*tables, *(read_tables(tables_file) if tables_file else ())))
        with opened_log(options) as index:
            database_id = index.database_id
        sink = open_sink(kind, to, catalog, database_id)
    spark = build(master=master, memory=memory, app="perdure-archive")
    try:
        job = Archive(
            options,
            sink,
            Wanted(specs[:-1], learns, has_fields, kind, catalog),
            directory=to,
            execute=SparkExecute(spark),
            on_position=CursorKeeper(options, name, str(to.resolve()), warn=_warn),
        )
        shown = partial(progress, spark, "archiving")
        _run(job, out, shown, pause_s=None if once else pause_s)
    finally:
        sink.close()
        spark.stop()


def _run(
    job: Archive,
    out: Output,
    shown: Callable[[], AbstractContextManager[None]],
    *,
    pause_s: float | None,
) -> None:
    """Round after round; without a pause, to the end of the log."""
    rows = files = misfits = 0
    tables: dict[str, None] = {}
    gaps: list[Gap] = []
    while True:
        begun = time.monotonic()
        with shown():
            done = _round(job)
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


def _round(job: Archive) -> Round:
    """One round; what was dropped before it ends the command."""
    from perdure.pipeline.offsets import DATA_LOSS

    try:
        return job.run_round()
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
