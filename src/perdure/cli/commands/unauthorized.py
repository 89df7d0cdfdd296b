"""``perdure unauthorized``: clients that were refused lately."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.listeners import ListUnauthorized
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list


@click.command()
@data_options
@click.option("--packet", default="", help="Only connect, publish, subscribe or packet.")
@output_options
def command(data: Path, packet: str, out: Output) -> None:
    """List clients that the running broker has refused lately, with the last reason.

    \b
    Examples:
      perdure unauthorized
      perdure unauthorized --packet publish --json
    """
    columns = (
        Column("last_at", time=True),
        Column("packet"),
        Column("client_id"),
        Column("username"),
        Column("address"),
        Column("topic"),
        Column("count", right=True),
        Column("reason", prose=True),
    )
    print_list(data, ListUnauthorized(limit=PAGE_MAX, packet=packet), columns, out)
