"""``perdure pipeline audit``: is everything there, once, and in order?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import From, log_options, pipeline_installed, read_options
from perdure.cli.range_options import since_option, topic_option


@click.command()
@log_options
@topic_option()
@since_option
@click.option(
    "--catalog", metavar="DIR", help="Archive with what retention has dropped from the log."
)
@click.option(
    "--stamp",
    metavar="text|json:FIELD",
    help="How messages are numbered: payloads 'publisher number ...', or a number in a JSON field.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="What publishers saw acknowledged: JSON lines with topic, publisher and number.",
)
@output_options
def audit(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    catalog: str | None,
    stamp: str | None,
    ledger: Path | None,
    out: Output,
) -> int:
    """Look for messages that are missing, repeated or out of order; exit 1 if there are any.

    Reads the log, the sessions and the retained messages of a data directory, beside a running
    broker or without one; not over --url. Needs no Spark and no Java.
    """
    if log.url:
        raise click.UsageError(
            "audit reads rows, index and sessions as they are on disk: run it where the data "
            "directory is, with --data"
        )
    options = read_options(log, filters, **{"from": since, "catalog": catalog})
    with pipeline_installed():
        from perdure.pipeline.jobs import audit as job
    if ledger is not None and stamp is None:
        raise click.UsageError("--ledger needs --stamp: how messages are numbered")
    found = job.audit(
        options,
        stamp=None if stamp is None else _numbered(job, stamp),
        ledger=() if ledger is None else job.read_ledger(ledger),
        progress=_progress,
    )
    if out.is_json:
        out.record(msgspec.to_builtins(found))
    else:
        columns = (Column("kind"), Column("subject"), Column("detail"))
        out.rows(columns, [msgspec.structs.asdict(each) for each in found.problems])
    count = sum(found.found.values())
    verdict = "nothing is wrong" if count == 0 else f"{count} findings"
    click.echo(
        f"{log.data}: {found.messages} messages ({found.stamped} numbered), {found.sessions} "
        f"sessions, {found.acknowledged} acknowledged ({found.older} older than the log): "
        f"{verdict}",
        err=True,
    )
    return ExitCode.EXPECTATION if count else ExitCode.OK


def _numbered(job: Any, stamp: str) -> Any:
    """What ``--stamp`` names."""
    kind, _, field = stamp.partition(":")
    if stamp == "text":
        return job.text_stamp
    if kind == "json" and field:
        return job.json_stamp(field)
    raise click.BadParameter(f"--stamp: expected text or json:FIELD, got {stamp!r}")


def _progress(done: int, total: int) -> None:
    """How many parts of the log were read, if there are many."""
    if done and done < total and done % 10 == 0:
        click.echo(f"read {done} of {total} parts", err=True)
