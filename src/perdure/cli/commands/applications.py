"""``perdure applications``: clients with a Kafka topic of all that they subscribe to."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.applications import (
    AddApplication,
    ListApplications,
    RemoveApplication,
    ShowApplication,
)
from perdure.cli.commands.forwarders import ask, connected
from perdure.cli.data import broker_options
from perdure.cli.output import Column, Output, output_options
from perdure.config.schema import Config

_LIST: Final = (
    Column("name"),
    Column("topic"),
    Column("state"),
    Column("lag_messages", right=True),
    Column("forwarded", right=True),
    Column("error"),
)


@click.group()
def command() -> None:
    """Applications: each has a Kafka topic of all that it subscribes to.

    The commands ask the running broker, which needs applications.bootstrap.

    \b
    Examples:
      perdure applications add billing 'meters/+/reading'
      perdure applications add alarms '$share/desk/alarms/#' 'plant/+/alarm'
      perdure applications list
      perdure applications remove billing
    """


@command.command("list")
@broker_options
@output_options
def list_applications(config: Config, out: Output) -> None:
    """List the applications and their topics."""
    with connected(config) as client:
        rows = client.items(ListApplications(limit=PAGE_MAX))
        out.rows(_LIST, map(msgspec.to_builtins, rows))


@command.command()
@click.argument("name")
@broker_options
@output_options
def show(name: str, config: Config, out: Output) -> None:
    """Show an application."""
    ask(config, out, ShowApplication(name=name))


@command.command()
@click.argument("name")
@click.argument("filters", nargs=-1, required=True)
@broker_options
@output_options
def add(name: str, filters: tuple[str, ...], config: Config, out: Output) -> None:
    """Add an application, or change its filters. $share/GROUP/FILTER names a consumer group."""
    ask(config, out, AddApplication(name=name, filters=list(filters)))


@command.command()
@click.argument("name")
@broker_options
@output_options
def remove(name: str, config: Config, out: Output) -> None:
    """Remove an application that was added. Its topic stays."""
    ask(config, out, RemoveApplication(name=name))
