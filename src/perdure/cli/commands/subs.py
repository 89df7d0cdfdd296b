"""``perdure subs``: subscriptions of all sessions, and who gets a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.subscriptions import ListSubscriptions, MatchTopic
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list

_COLUMNS: Final = (
    Column("client_id"),
    Column("connected"),
    Column("filter"),
    Column("qos", right=True),
    Column("group"),
    Column("where"),
)


@click.group()
def command() -> None:
    """List subscriptions, and find out who gets a topic. Needs a running broker.

    \b
    Examples:
      perdure subs list --prefix pump-
      perdure subs match devices/7/temperature
    """


@command.command("list")
@data_options
@click.option("--client-id", default="", help="Only of this client.")
@click.option("--prefix", default="", help="Only of client ids that begin so.")
@click.option("--contains", default="", metavar="TEXT", help="Only filters that hold this.")
@click.option("--group", help="Only of this shared group; empty = only those not shared.")
@click.option("--qos", type=click.IntRange(0, 2), help="Only with this QoS.")
@click.option("--connected/--offline", default=None, help="Only of such sessions.")
@output_options
def list_subscriptions(
    data: Path,
    client_id: str,
    prefix: str,
    contains: str,
    group: str | None,
    qos: int | None,
    connected: bool | None,
    out: Output,
) -> None:
    """List subscriptions, by client id and filter."""
    request = ListSubscriptions(
        limit=PAGE_MAX,
        client_id=client_id,
        prefix=prefix,
        filter_like=contains,
        group=group,
        qos=qos,
        connected=connected,
    )
    print_list(data, request, _COLUMNS, out)


@command.command()
@data_options
@click.argument("topic")
@click.option("--connected/--offline", default=None, help="Only such sessions.")
@output_options
def match(data: Path, topic: str, connected: bool | None, out: Output) -> None:
    """List who gets messages on TOPIC, as the broker's own matcher tells."""
    request = MatchTopic(limit=PAGE_MAX, topic=topic, connected=connected)
    print_list(data, request, (*_COLUMNS, Column("allowed")), out)
