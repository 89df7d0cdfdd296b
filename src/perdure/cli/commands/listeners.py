"""``perdure listeners``: where the broker listens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perdure.admin.records.listeners import (
    ListListeners,
    RestartListener,
    StartListener,
    StopListener,
)
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list, print_record

_COLUMNS: Final = (
    Column("name"),
    Column("addresses"),
    Column("accepting"),
    Column("connections", right=True),
    Column("opened_total", right=True),
    Column("refused_total", right=True),
)


@click.group()
def command() -> None:
    """Show, start and stop listeners. Needs a running broker.

    \b
    Examples:
      perdure listeners list
      perdure listeners stop tls:0.0.0.0:8883
    """


@command.command("list")
@data_options
@output_options
def list_listeners(data: Path, out: Output) -> None:
    """List the listeners."""
    print_list(data, ListListeners(), _COLUMNS, out)


@command.command()
@data_options
@click.argument("name")
@output_options
def start(data: Path, name: str, out: Output) -> None:
    """Listen again."""
    print_record(data, StartListener(name=name), out)


@command.command()
@data_options
@click.argument("name")
@click.option("--close-connections", is_flag=True, help="Disconnect who is connected, too.")
@output_options
def stop(data: Path, name: str, close_connections: bool, out: Output) -> None:
    """Accept no more, until the next start."""
    print_record(data, StopListener(name=name, close_connections=close_connections), out)


@command.command()
@data_options
@click.argument("name")
@output_options
def restart(data: Path, name: str, out: Output) -> None:
    """Close the sockets and open them again, with the certificates of now."""
    print_record(data, RestartListener(name=name), out)
