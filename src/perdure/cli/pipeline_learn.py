"""``perdure pipeline learn``: a topic structure for the log's next generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import (
    From,
    log_options,
    opened_log,
    output_path,
    pipeline_installed,
    read_options,
    spark_for,
    topic_options,
)
from perdure.cli.range_options import until_option

SHOWN: Final = 50


@click.command()
@log_options
@topic_options
@until_option
@click.option(
    "--write",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=output_path,
    metavar="FILE",
    help="Write the proposal, for storage rotate --proposal and archive --tables.",
)
@output_options
def learn(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    master: str | None,
    memory: str | None,
    file: Path | None,
    out: Output,
) -> None:
    """Find which levels of the topics vary; show what it would change."""
    options = read_options(log, filters, **{"from": since, "until": until})
    with pipeline_installed():
        from perdure.pipeline.jobs.learn import propose
        from perdure.pipeline.session import progress
        from perdure.pipeline.spark_jobs import count_patterns, source_errors
    with opened_log(options) as index:
        newest, database = index.newest(), index.database_id
        streams = index.patterns(index.generations()[-1].generation)
    if newest is None:
        raise CommandFailed(f"{log.place}: nothing was recorded yet", ExitCode.NOT_FOUND)
    until_offset = min(options.until_offset, newest.offset)
    options = msgspec.structs.replace(options, until_offset=until_offset)
    with (
        spark_for("learn", log.pipeline, master, memory) as spark,
        source_errors(),
        progress(spark, "counting topics"),
    ):
        counts = count_patterns(spark, options)
    found = propose(counts, streams, database=database, through_offset=until_offset)
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))
        click.echo(f"wrote {file}", err=True)
    _show(out, found, len(streams))


def _show(out: Output, found: Any, streams: int) -> None:
    if out.is_json:
        out.record(msgspec.to_builtins(found))
        return
    out.record(
        {
            "messages": found.messages,
            "thresholds": " ".join(map(str, found.thresholds)),
            "streams_before": streams,
            "streams_after": len(found.structures),
            "tables": len(found.tables),
        }
    )
    out.text("\n")
    columns = (
        Column("pattern"),
        Column("messages", right=True),
        Column("streams_before", right=True),
        Column("streams_after", right=True),
    )
    rows = [{**msgspec.structs.asdict(each), "streams_after": 1} for each in found.structures]
    out.rows(columns, rows[:SHOWN])
    if len(rows) > SHOWN:
        out.text(f"and {len(rows) - SHOWN} more\n")
