"""``perdure pipeline``: the log in Spark, and into tables."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.data import data_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.clock import SystemClock
from perdure.config.units import format_time, parse_duration
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.pipeline.jobs.archive import Archive, Round
    from perdure.pipeline.options import ReadOptions
    from perdure.pipeline.sinks.contract import Sink

EVERY: Final = "1m"
TOP: Final = 20


@click.group()
def command() -> None:
    """Read the log with Spark, beside a running broker. Needs perdure[spark] and Java 17.

    \b
    Examples:
      perdure pipeline stats --from 24h --html traffic.html
      perdure pipeline archive --once --to archive
      perdure pipeline archive --to archive --table 'rooms=rooms/{room}/{sensor}'
    """


def _topic_options(command: Any) -> Any:
    for option in (
        click.option("--memory", default="2g", show_default=True, help="Of the Spark driver."),
        click.option("--master", metavar="URL", help="Where Spark runs; else on this machine."),
        click.option("--from", "since", metavar="TIME", help="RFC 3339, or how long ago (2h)."),
        click.option(
            "--topic",
            "-t",
            "filters",
            multiple=True,
            metavar="FILTER",
            help="Topic filter; may be repeated. Everything if not given.",
        ),
    ):
        command = option(command)
    return command


def _options(data: Path, filters: tuple[str, ...], **others: str | None) -> ReadOptions:
    try:
        from perdure.pipeline.options import parse_options
    except ImportError as error:
        raise _missing() from error
    if not (data / "CURRENT").exists():
        raise CommandFailed(
            f"{data} holds no database",
            ExitCode.NOT_FOUND,
            hint="name the broker's data directory with --data",
        )
    given = {name: value for name, value in others.items() if value is not None}
    if filters:
        given["topic"] = msgspec.json.encode(filters).decode()
    try:
        return parse_options({"path": str(data.resolve()), **given}, SystemClock().now_us())
    except ConfigError as error:
        raise click.BadParameter(error.message) from error


def _missing() -> ConfigError:
    return ConfigError("the data pipeline is not installed", hint="pip install 'perdure[spark]'")


# -- stats ---------------------------------------------------------------------------------


@command.command()
@data_options
@_topic_options
@click.option("--until", metavar="TIME", help="RFC 3339, or how long ago (5m).")
@click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a report.")
@output_options
def stats(
    data: Path,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    master: str | None,
    memory: str,
    top: int,
    html: Path | None,
    out: Output,
) -> None:
    """Show traffic by topic structure, client and hour, and clients that have gone silent."""
    options = _options(data, filters, **{"from": since, "until": until})
    try:
        from perdure.pipeline.jobs import stats as job
        from perdure.pipeline.jobs.stats_report import render
        from perdure.pipeline.session import build, progress
        from perdure.pipeline.spark_jobs import read_log, told
    except ImportError as error:
        raise _missing() from error
    spark = build(master=master, memory=memory, app="perdure-stats")
    try:
        with told(), progress(spark, "reading the log"):
            found = job.collect(spark, read_log(spark, options, job.COLUMNS), top=top)
    finally:
        spark.stop()
    if html is not None:
        html.write_text(render(found, title=f"Traffic of {data}"), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    _print_statistics(out, found)


def _print_statistics(out: Output, found: Any) -> None:
    plain: dict[str, Any] = _plain(msgspec.structs.asdict(found))
    if out.is_json:
        out.record(plain)
        return
    out.record(plain["totals"])
    for name in ("structures", "clients", "hours", "silent"):
        rows = plain[name]
        if rows:
            out.text(f"\n{name}\n")
            columns = [
                Column(field, right=isinstance(value, int | float))
                for field, value in rows[0].items()
            ]
            out.rows(columns, rows)


def _plain(value: Any) -> Any:
    """Moments as the other commands write them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return format_time(round(value.timestamp() * 1_000_000))
    return value


# -- archive -------------------------------------------------------------------------------


@command.command()
@data_options
@_topic_options
@click.option(
    "--to",
    type=click.Path(path_type=Path),
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
    data: Path,
    filters: tuple[str, ...],
    since: str | None,
    master: str | None,
    memory: str,
    to: Path,
    kind: str,
    tables: tuple[str, ...],
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
    options = _options(data, filters, **{"from": since, "onDataLoss": on_data_loss})
    try:
        from perdure.pipeline.jobs.archive import Archive
        from perdure.pipeline.session import build
        from perdure.pipeline.spark_jobs import SparkExecute
        from perdure.pipeline.tables import parse_tables

        specs = parse_tables(tables)
        sink = _sink(kind, to, catalog, data)
    except ImportError as error:
        raise _missing() from error
    spark = build(master=master, memory=memory, app="perdure-archive")
    try:
        job = Archive(
            options,
            sink,
            specs,
            progress=to / f"progress-{kind}.json",
            execute=SparkExecute(spark),
        )
        _run(job, out, pause_s=None if once else pause_s)
    finally:
        sink.close()
        spark.stop()


def _sink(kind: str, to: Path, catalog: str | None, data: Path) -> Sink:
    from perdure.pipeline.jobs.archive import database_id

    to.mkdir(parents=True, exist_ok=True)
    to = to.resolve()
    identity = database_id(data)
    if kind == "parquet":
        from perdure.pipeline.sinks.parquet import ParquetSink

        return ParquetSink(to, identity)
    if kind == "delta":
        from perdure.pipeline.sinks.delta import DeltaSink

        return DeltaSink(to, identity)
    from perdure.pipeline.sinks import iceberg

    chosen = iceberg.local_catalog(to) if catalog is None else iceberg.named_catalog(catalog)
    return iceberg.IcebergSink(chosen, identity)


def _run(job: Archive, out: Output, *, pause_s: float | None) -> None:
    """Round after round; without a pause, to the end of the log."""
    rows = files = 0
    while True:
        begun = time.monotonic()
        done = job.run_round()
        rows, files = rows + done.rows, files + done.files
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
