"""``perdure pipeline archive``: the log into tables, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perdure.cli.output import Output, output_options
from perdure.cli.pipeline_options import (
    From,
    log_options,
    missing,
    opened_log,
    read_options,
    topic_options,
)
from perdure.config.units import format_time, parse_duration

if TYPE_CHECKING:
    from perdure.pipeline.jobs.archive import Archive, Round

EVERY: Final = "1m"
COLUMNS_SHOWN: Final = 8


@click.command()
@log_options
@topic_options
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Directory of the tables.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["iceberg", "delta", "parquet"]),
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
    help="What to do if messages were dropped before they were archived.",
)
@output_options
def archive(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    master: str | None,
    memory: str,
    to: Path,
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
    """Copy the log into tables, exactly once; goes on where it ended."""
    try:
        pause_s = parse_duration(every, "us") / 1_000_000
    except ValueError as error:
        raise click.BadParameter(f"--every: {error}") from error
    if catalog is not None and kind != "iceberg":
        raise click.UsageError("--catalog is for --format iceberg")
    options = read_options(log, filters, **{"from": since, "onDataLoss": on_data_loss})
    try:
        from perdure.pipeline.jobs.archive import Archive, Wanted
        from perdure.pipeline.session import build, progress
        from perdure.pipeline.sinks.opening import open_sink
        from perdure.pipeline.spark_jobs import SparkExecute
        from perdure.pipeline.tables import parse_tables, read_tables

        specs = parse_tables((*tables, *(read_tables(tables_file) if tables_file else ())))
        with opened_log(options) as index:
            database_id = index.database_id
        to.mkdir(parents=True, exist_ok=True)
        sink = open_sink(kind, to, catalog, database_id)
    except ImportError as error:
        raise missing() from error
    spark = build(master=master, memory=memory, app="perdure-archive")
    try:
        job = Archive(
            options,
            sink,
            Wanted(specs[:-1], learns, has_fields, kind, catalog),
            directory=to,
            execute=SparkExecute(spark),
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
    while True:
        begun = time.monotonic()
        with shown():
            done = job.run_round()
        rows, files, misfits = rows + done.rows, files + done.files, misfits + done.misfits
        tables |= dict.fromkeys(done.tables)
        if done.rows:
            _tell(done, time.monotonic() - begun)
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
        }
    )


def _tell(done: Round, seconds: float) -> None:
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
