"""``perdure retained``: retained messages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from perdure.admin.records.messages import DeleteRetained, GetRetained, ListRetained
from perdure.cli.data import confirm, data_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, error_line, output_options
from perdure.cli.running_broker import print_list, print_record, running_broker

LIST_PAGE: Final = 100


@click.group()
def command() -> None:
    """List, show and delete retained messages. Needs a running broker.

    \b
    Examples:
      perdure retained list 'plant/#'
      perdure retained get plant/1/state
      perdure retained rm plant/1/state --yes
    """


@command.command("list")
@data_options
@click.argument("topic_filter", metavar="[FILTER]", default="#")
@output_options
def list_retained(data: Path, topic_filter: str, out: Output) -> None:
    """List the retained messages that match FILTER, without their payloads.

    Without FILTER it is #, which matches no topic that begins with $: ask for those by their first
    level, as in '$own/#'. What the broker tells below $SYS is not retained: see `perdure status`.
    """
    columns = (
        Column("topic"),
        Column("qos", right=True),
        Column("payload_bytes", right=True),
        Column("published_at", time=True),
        Column("expires_at", time=True),
        Column("publisher"),
    )
    print_list(data, ListRetained(filter=topic_filter, limit=LIST_PAGE), columns, out)


@command.command()
@data_options
@click.argument("topic")
@output_options
def get(data: Path, topic: str, out: Output) -> None:
    """Show the retained message of TOPIC."""
    print_record(data, GetRetained(topic=topic), out)


@command.command()
@data_options
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def rm(data: Path, topics: tuple[str, ...], yes: bool, out: Output) -> int:
    """Delete the retained messages of topics; subscribers are told nothing."""
    what = topics[0] if len(topics) == 1 else f"{len(topics)} topics"
    confirm(f"Delete what is retained on {what}?", yes=yes)
    missing, rows = 0, []
    with running_broker(data) as client:
        for topic in topics:
            try:
                rows.append(msgspec.to_builtins(client.call(DeleteRetained(topic=topic))))
            except CommandFailed as error:
                if error.exit_code is not ExitCode.NOT_FOUND:
                    raise
                missing += 1
                error_line(error.message)
    out.rows((Column("topic"), Column("action")), rows)
    return ExitCode.NOT_FOUND if missing else ExitCode.OK
