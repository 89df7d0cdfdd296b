"""``perdure forwarders``: what goes to other systems, and how far it is."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.forwarders import (
    AddForwarder,
    Given,
    ListForwarders,
    PauseForwarder,
    RemoveForwarder,
    ResumeForwarder,
    ShowForwarder,
)
from perdure.cli.data import broker_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list, print_record
from perdure.config.schema import Config

_LIST = (
    Column("name"),
    Column("type"),
    Column("state"),
    Column("lag_messages", right=True),
    Column("lag_s", right=True, tenths=True),
    Column("forwarded", right=True),
    Column("received", right=True),
    Column("refused", right=True),
    Column("node"),
    Column("error"),
)


@click.group()
def command() -> None:
    """Bridges to other brokers, and sinks: Kafka, webhooks, Redis, PostgreSQL.

    A forwarder is a durable session of the broker itself: what it forwards has a cursor, and waits
    for its target for hours or days. Those of the configuration are changed there; those that are
    added here are kept in the data directory. The commands ask the running broker.

    \b
    Examples:
      perdure forwarders list
      perdure forwarders add cloud type=mqtt url=mqtts://bridge:pw@cloud.example filter=site/#
      perdure forwarders pause cloud
      perdure forwarders show cloud
    """


@command.command("list")
@broker_options
@output_options
def list_forwarders(config: Config, out: Output) -> None:
    """List the forwarders, with how far behind they are."""
    print_list(Path(config.storage.path), ListForwarders(limit=PAGE_MAX), _LIST, out)


@command.command()
@click.argument("name")
@broker_options
@output_options
def show(name: str, config: Config, out: Output) -> None:
    """Show a forwarder, with those of its settings that are not the defaults."""
    print_record(Path(config.storage.path), ShowForwarder(name=name), out)


@command.command()
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@broker_options
@output_options
def add(name: str, settings: tuple[str, ...], config: Config, out: Output) -> None:
    """Add a forwarder, or change one that was added. What is not set has its default."""
    given: dict[str, Given] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter(f"{each}: expected setting=value")
        given[key] = value
    print_record(Path(config.storage.path), AddForwarder(name=name, settings=given), out)


@command.command()
@click.argument("name")
@broker_options
@output_options
def pause(name: str, config: Config, out: Output) -> None:
    """Let a forwarder rest; what it has to forward is kept meanwhile."""
    print_record(Path(config.storage.path), PauseForwarder(name=name), out)


@command.command()
@click.argument("name")
@broker_options
@output_options
def resume(name: str, config: Config, out: Output) -> None:
    """Let a paused or stopped forwarder go on where it was."""
    print_record(Path(config.storage.path), ResumeForwarder(name=name), out)


@command.command()
@click.argument("name")
@broker_options
@output_options
def remove(name: str, config: Config, out: Output) -> None:
    """Remove a forwarder that was added, with its cursor."""
    print_record(Path(config.storage.path), RemoveForwarder(name=name), out)
