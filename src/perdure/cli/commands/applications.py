"""``perdure applications``: clients with a Kafka topic of all that they subscribe to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.applications import (
    AddApplication,
    ListApplications,
    RemoveApplication,
    ShowApplication,
)
from perdure.cli.data import broker_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list, print_record
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
    print_list(Path(config.storage.path), ListApplications(limit=PAGE_MAX), _LIST, out)


@command.command()
@click.argument("name")
@broker_options
@output_options
def show(name: str, config: Config, out: Output) -> None:
    """Show an application."""
    print_record(Path(config.storage.path), ShowApplication(name=name), out)


@command.command()
@click.argument("name")
@click.argument("filters", nargs=-1, required=True)
@broker_options
@output_options
def add(name: str, filters: tuple[str, ...], config: Config, out: Output) -> None:
    """Add an application, or change its filters. $share/GROUP/FILTER names a consumer group."""
    print_record(Path(config.storage.path), AddApplication(name=name, filters=list(filters)), out)


@command.command()
@click.argument("name")
@broker_options
@output_options
def remove(name: str, config: Config, out: Output) -> None:
    """Remove an application that was added. Its topic stays."""
    print_record(Path(config.storage.path), RemoveApplication(name=name), out)
