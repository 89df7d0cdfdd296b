"""``perdure pipeline stats``: the traffic of a log."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.data import open_database
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import (
    MEMORY,
    From,
    log_options,
    named_spark,
    opened_log,
    output_path,
    pipeline_installed,
    plain,
    read_options,
    spark_for,
    topic_options,
)
from perdure.cli.range_options import until_option

if TYPE_CHECKING:
    from perdure.pipeline.jobs.stats import Engine, Statistics
    from perdure.pipeline.options import ReadOptions

TOP: Final = 20


@click.command()
@log_options
@topic_options
@until_option
@click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=output_path,
    metavar="FILE",
    help="Write a report.",
)
@output_options
def stats(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    master: str | None,
    memory: str | None,
    top: int,
    html: Path | None,
    out: Output,
) -> None:
    """Show traffic by topic structure, client and hour; silent clients, and slow sessions.

    Runs in this process, on DuckDB; in Spark where --master or pipeline.master names one.

    Sessions are looked at in a data directory only: with --url there is no answer about them.
    """
    options = read_options(log, filters, **{"from": since, "until": until})
    found = statistics(log, options, top=top, master=master, memory=memory)
    if log.url:
        click.echo("slow sessions: not over --url, see --data", err=True)
    if html is not None:
        html.write_text(page(log, found), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    _print_statistics(out, found)


def statistics(
    log: From,
    options: ReadOptions,
    *,
    top: int = TOP,
    master: str | None = None,
    memory: str | None = None,
) -> Statistics:
    """What is in a range of a log; with slow sessions, if it is in a directory."""
    with pipeline_installed():
        from perdure.pipeline.jobs import stats as job
        from perdure.pipeline.jobs.slow import slow_sessions
        from perdure.pipeline.log_source import about_rows
    with opened_log(options) as index:
        rows = about_rows(index, options)
    with _engine(log, options, master, memory, rows) as engine:
        found = job.collect(engine, top=top)
    if log.url:
        return found
    with open_database(log.data) as opened:
        slow = opened.run(slow_sessions(opened.database, top=top))
    return msgspec.structs.replace(found, slow=slow)


def page(log: From, found: Statistics) -> str:
    """Statistics as a page."""
    from perdure.pipeline.jobs.stats_report import render

    return render(found, title=f"Traffic of {log.place}")


@contextlib.contextmanager
def _engine(
    log: From, options: ReadOptions, master: str | None, memory: str | None, rows: int
) -> Iterator[Engine]:
    """What counts about so many messages: Spark where one is named, or where there is no
    DuckDB."""
    has_duckdb = importlib.util.find_spec("duckdb") is not None
    if not named_spark(log.pipeline, master) and has_duckdb:
        from perdure.pipeline.jobs.stats_here import HereEngine

        with HereEngine(options, memory=memory or log.pipeline.memory or MEMORY) as here:
            yield here
        return
    with pipeline_installed():
        from perdure.pipeline.jobs.stats import COLUMNS
        from perdure.pipeline.session import SHORT_ROWS_MAX, progress
        from perdure.pipeline.spark_jobs import HERE_ROWS_MAX, SparkEngine, read_log, source_errors
    short = rows <= SHORT_ROWS_MAX
    with (
        spark_for(
            "stats", log.pipeline, master, memory, without="perdure[sql]", is_short=short
        ) as spark,
        source_errors(),
        progress(spark, "reading the log"),
        SparkEngine(
            spark,
            here_rows_max=HERE_ROWS_MAX,
            rows=rows,
            log=read_log(spark, options, COLUMNS),
        ) as engine,
    ):
        yield engine


def _print_statistics(out: Output, found: Any) -> None:
    answers: dict[str, Any] = plain(msgspec.structs.asdict(found))
    if out.is_json:
        out.record(answers)
        return
    out.record(answers["totals"])
    for name in ("structures", "clients", "hours", "silent", "slow"):
        rows = answers[name]
        if rows:
            out.text(f"\n{name}\n")
            columns = [
                Column(field, right=isinstance(value, int | float))
                for field, value in rows[0].items()
            ]
            out.rows(columns, rows)
