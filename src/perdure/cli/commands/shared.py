"""``perdure shared``: groups of shared subscriptions."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.subscriptions import ListSharedGroups
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list


@click.group()
def command() -> None:
    """Groups of shared subscriptions. Needs a running broker.

    \b
    Examples:
      perdure shared list
    """


@command.command("list")
@data_options
@output_options
def list_groups(data: Path, out: Output) -> None:
    """List the groups, who belongs to them, and how far they are behind."""
    columns = (
        Column("group"),
        Column("filter"),
        Column("members_connected", right=True),
        Column("members_durable", right=True),
        Column("lag_messages", right=True),
        Column("lagging"),
        Column("position_at", time=True),
    )
    print_list(data, ListSharedGroups(limit=PAGE_MAX), columns, out)
