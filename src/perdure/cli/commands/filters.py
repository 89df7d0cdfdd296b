"""``perdure filters``: content filters that clients subscribe with by id, in the running broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.filters import DeleteFilter, GetFilter, ListFilters, PutFilter
from perdure.cli.data import broker_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import running_broker
from perdure.config.schema import Config

_COLUMNS: Final = (Column("id"), Column("filter"), Column("since", time=True), Column("state"))


@click.group()
def command() -> None:
    """Content filters under an id, for clients that cannot send one.

    A client subscribes to $filter/<id>/<topic filter>. Changing a filter changes it for everyone
    who subscribes with it, from that moment on; one that is in use is not deleted.

    \b
    Examples:
      perdure filters put hot '{"t": {"$gt": 30}}'
      perdure filters list
      perdure filters delete hot
    """


@command.command("list")
@broker_options
@output_options
def list_filters(config: Config, out: Output) -> None:
    """List the filters."""
    with running_broker(Path(config.storage.path)) as client:
        out.rows(_COLUMNS, map(msgspec.to_builtins, client.items(ListFilters(limit=PAGE_MAX))))


@command.command()
@click.argument("name", metavar="ID")
@broker_options
@output_options
def get(config: Config, name: str, out: Output) -> None:
    """Show a filter."""
    with running_broker(Path(config.storage.path)) as client:
        out.record(msgspec.to_builtins(client.call(GetFilter(id=name))))


@command.command()
@click.argument("name", metavar="ID")
@click.argument("text", metavar="FILTER")
@broker_options
@output_options
def put(config: Config, name: str, text: str, out: Output) -> None:
    """Store a filter, or change it for all who subscribe with it.

    Tells how many subscriptions of connected clients and groups have changed. Those of clients that
    are not connected follow, from the same moment on; until then the state is `changing`.
    """
    with running_broker(Path(config.storage.path)) as client:
        row = msgspec.to_builtins(client.call(PutFilter(id=name, filter=text)))
        out.rows((*_COLUMNS, Column("changed", right=True)), [row])


@command.command()
@click.argument("name", metavar="ID")
@broker_options
@output_options
def delete(config: Config, name: str, out: Output) -> None:
    """Forget a filter that nobody subscribes with."""
    with running_broker(Path(config.storage.path)) as client:
        out.rows(
            (Column("id"), Column("action")),
            [msgspec.to_builtins(client.call(DeleteFilter(id=name)))],
        )
