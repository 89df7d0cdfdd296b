"""``perdure pipeline registry``: what is in a registry, counted."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import (
    MEMORY,
    NO_SPARK,
    output_path,
    pipeline_installed,
    plain,
    spark_session,
)
from perdure.cli.registry_options import place_options
from perdure.clock import SystemClock

if TYPE_CHECKING:
    from perdure.pipeline.jobs.stats import Engine
    from perdure.registry.tables import Place

TOP: Final = 20


@click.command()
@place_options
@click.option("--master", metavar="URL", default=NO_SPARK, show_default=True,
              help="Where Spark runs.")  # fmt: skip
@click.option("--memory", help="Of DuckDB, or of the Spark driver (2g).")
@click.option("--top", type=click.IntRange(1, 10_000), default=TOP, show_default=True)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), callback=output_path,
              metavar="FILE", help="Write a report.")  # fmt: skip
@output_options
def registry(
    master: str,
    memory: str | None,
    top: int,
    html: Path | None,
    out: Output,
    **place: Any,
) -> None:
    """Count a registry: channels by size, filters by use, devices by activity, partitions.

    Looks at all subscriptions and devices, in pages beside the workers. Runs in this process, on
    DuckDB; in Spark, which reads with all its cores, where --master names one.

    \b
    Examples:
      perdure pipeline registry --url redis://localhost --html registry.html
      perdure pipeline registry --url redis+cluster://a,b,c --master 'local[4]'
    """
    with pipeline_installed():
        from perdure.pipeline.jobs import registry as job
        from perdure.pipeline.jobs.registry_report import render
        from perdure.registry.tables import Place
    where = Place(place["url"], place["partitions"], place["prefix"])
    now_s = SystemClock().now_us() // 1_000_000
    with _engine(where, master, memory or MEMORY) as engine:
        found = job.collect(engine, top=top, partitions=where.partitions, now_s=now_s)
    if html is not None:
        html.write_text(render(found, title="Registry of subscriptions"), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    _print(out, plain(msgspec.structs.asdict(found)))


@contextlib.contextmanager
def _engine(place: Place, master: str, memory: str) -> Iterator[Engine]:
    """What counts, with the rows of the registry for its frame ``found``."""
    from perdure.registry import tables

    if master == NO_SPARK:
        if importlib.util.find_spec("duckdb") is None:
            raise CommandFailed(
                "counting a registry needs Spark or perdure[sql]",
                ExitCode.USAGE,
                hint="pip install 'perdure[sql]', or --master 'local[*]'",
            )
        from perdure.pipeline.jobs.stats_here import HereEngine

        with HereEngine(None, memory=_duckdb_size(memory)) as here:
            here.add("found", tables.reader(place))
            yield here
        return
    with pipeline_installed():
        from perdure.pipeline.spark_jobs import SparkEngine
    with spark_session("registry", master=master, memory=memory) as spark:
        named = [(bytearray(key),) for page in tables.list_keys(place) for key in page]
        parts = max(2, spark.sparkContext.defaultParallelism)
        spark.conf.set("spark.sql.shuffle.partitions", str(parts))
        listed = spark.createDataFrame(named, tables.KEYS_DDL).repartition(parts)
        found = listed.mapInArrow(partial(tables.read_batches, place), tables.DDL)
        with SparkEngine(spark, found=found) as engine:
            yield engine


def _duckdb_size(memory: str) -> str:
    """``2g`` as DuckDB writes it."""
    return memory if memory[-1:] in {"b", "B"} else f"{memory}b"


def _print(out: Output, answers: dict[str, Any]) -> None:
    if out.is_json:
        out.record(answers)
        return
    out.record(answers["totals"])
    for name, rows in answers.items():
        if name == "totals" or not rows:
            continue
        out.text(f"\n{name}\n")
        rows = [rows] if isinstance(rows, dict) else rows
        columns = [
            Column(field, right=isinstance(value, int | float)) for field, value in rows[0].items()
        ]
        out.rows(columns, rows)
