"""``perdure pipeline learn``: a topic structure for the log's next generation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import (
    From,
    log_options,
    named_spark,
    opened_log,
    output_path,
    pipeline_installed,
    read_options,
    spark_session,
    topic_options,
)
from perdure.cli.range_options import until_option

if TYPE_CHECKING:
    from perdure.pipeline.options import ReadOptions
    from perdure.topic.proposal import Proposal

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
    """Find which levels of the topics vary; show what it would change.

    Runs in this process, or in Spark where --master or pipeline.master names one.
    """
    options = read_options(log, filters, **{"from": since, "until": until})
    learned = proposal(log, options, master=master, memory=memory)
    if learned is None:
        raise CommandFailed(f"{log.place}: nothing was recorded yet", ExitCode.NOT_FOUND)
    found, streams = learned
    if file is not None:
        file.write_bytes(encoded(found))
        click.echo(f"wrote {file}", err=True)
    _show(out, found, streams)


def proposal(
    log: From, options: ReadOptions, *, master: str | None = None, memory: str | None = None
) -> tuple[Proposal, int] | None:
    """A proposal, and how many streams there are now; None = nothing was recorded."""
    with pipeline_installed():
        from perdure.pipeline.jobs.learn import propose
    with opened_log(options) as index:
        newest, database = index.newest(), index.database_id
        streams = index.patterns(index.generations()[-1].generation)
    if newest is None:
        return None
    until_offset = min(options.until_offset, newest.offset)
    options = msgspec.structs.replace(options, until_offset=until_offset)
    counts = _counts(log, options, master, memory)
    found = propose(counts, streams, database=database, through_offset=until_offset)
    return found, len(streams)


def encoded(found: Proposal) -> bytes:
    """A proposal as a file."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2)


def _counts(
    log: From, options: ReadOptions, master: str | None, memory: str | None
) -> list[tuple[str, int]]:
    """Patterns of topics with their messages, for a proposal."""
    where = named_spark(log.pipeline, master)
    with pipeline_installed():
        if not where:
            from perdure.pipeline.here import read_here
            from perdure.pipeline.jobs.learn import count_batches

            counted = count_batches(read_here(options, ["topic"]))
            return [
                (row["pattern"], row["messages"]) for each in counted for row in each.to_pylist()
            ]
        from perdure.pipeline.session import progress
        from perdure.pipeline.spark_jobs import count_patterns, source_errors
    with (
        spark_session("learn", master=where, memory=memory or log.pipeline.memory) as spark,
        source_errors(),
        progress(spark, "counting topics"),
    ):
        return count_patterns(spark, options)


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
