"""``perdure forwarders``: what goes to other systems, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.admin.limits import PAGE_MAX
from perdure.admin.operation import Request
from perdure.admin.records.forwarders import (
    AddForwarder,
    Given,
    ListForwarders,
    PauseForwarder,
    RemoveForwarder,
    ResumeForwarder,
    ShowForwarder,
)
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.config.schema import Config

_LIST = (
    Column("name"),
    Column("type"),
    Column("state"),
    Column("lag_messages", right=True),
    Column("lag_s", right=True),
    Column("forwarded", right=True),
    Column("received", right=True),
    Column("refused", right=True),
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
    with connected(config) as client:
        rows = client.items(ListForwarders(limit=PAGE_MAX))
        out.rows(_LIST, map(msgspec.to_builtins, rows))


@command.command()
@click.argument("name")
@broker_options
@output_options
def show(name: str, config: Config, out: Output) -> None:
    """Show a forwarder, with those of its settings that are not the defaults."""
    ask(config, out, ShowForwarder(name=name))


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
    ask(config, out, AddForwarder(name=name, settings=given))


@command.command()
@click.argument("name")
@broker_options
@output_options
def pause(name: str, config: Config, out: Output) -> None:
    """Let a forwarder rest; what it has to forward is kept meanwhile."""
    ask(config, out, PauseForwarder(name=name))


@command.command()
@click.argument("name")
@broker_options
@output_options
def resume(name: str, config: Config, out: Output) -> None:
    """Let a paused or stopped forwarder go on where it was."""
    ask(config, out, ResumeForwarder(name=name))


@command.command()
@click.argument("name")
@broker_options
@output_options
def remove(name: str, config: Config, out: Output) -> None:
    """Remove a forwarder that was added, with its cursor."""
    ask(config, out, RemoveForwarder(name=name))


def connected(config: Config) -> AdminClient:
    """The running broker.

    Raises:
        CommandFailed: none runs.
    """
    client = AdminClient.connect(Path(config.storage.path))
    if client is None:
        raise CommandFailed(
            f"no broker runs on {config.storage.path}",
            ExitCode.UNAVAILABLE,
            hint="forwarders live in the broker: start it, or name its data directory with --data",
        )
    return client


def ask(config: Config, out: Output, request: Request[Any]) -> None:
    """Show the answer to a request."""
    with connected(config) as client:
        out.record(msgspec.to_builtins(client.call(request)))
