"""``perdure sessions inflight | pending | awaiting-release | subscribe | unsubscribe``: what one
session holds, and subscriptions that are made for it. They need a running broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from perdure.admin.records.session_parts import (
    ListAwaitingRelease,
    ListInflight,
    ListPending,
    SubscribeSession,
    UnsubscribeSession,
)
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_list, print_record

PAGE: Final = 500

_OWED: Final = (
    Column("serial", right=True),
    Column("topic"),
    Column("granted_qos", right=True),
    Column("payload_bytes", right=True),
    Column("published_at", time=True),
    Column("expires_at", time=True),
)
_INFLIGHT: Final = (Column("packet_id", right=True), Column("awaits"), *_OWED)


@click.command()
@data_options
@click.argument("client_id")
@output_options
def inflight(data: Path, client_id: str, out: Output) -> None:
    """List messages that were sent to a client and are not acknowledged."""
    print_list(data, ListInflight(client_id=client_id, limit=PAGE), _INFLIGHT, out)


@click.command()
@data_options
@click.argument("client_id")
@output_options
def pending(data: Path, client_id: str, out: Output) -> None:
    """List messages that wait for a client, oldest first."""
    print_list(data, ListPending(client_id=client_id, limit=PAGE), _OWED, out)


@click.command("awaiting-release")
@data_options
@click.argument("client_id")
@output_options
def awaiting_release(data: Path, client_id: str, out: Output) -> None:
    """List QoS 2 messages of a client between PUBREC and PUBREL."""
    columns = (Column("packet_id", right=True),)
    print_list(data, ListAwaitingRelease(client_id=client_id, limit=PAGE), columns, out)


@click.command()
@data_options
@click.argument("client_id")
@click.argument("filter_", metavar="FILTER")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@click.option("--no-local", is_flag=True, help="Not what the client publishes itself.")
@click.option("--retain-as-published", is_flag=True, help="Keep the RETAIN flag.")
@click.option("--retain-handling", type=click.IntRange(0, 2), default=0, show_default=True,
              help="0 = retained messages come, 1 = if it is new, 2 = never.")  # fmt: skip
@click.option("--identifier", type=click.IntRange(0, 268_435_455), default=0,
              help="Subscription Identifier.")  # fmt: skip
@click.option("--where", default="", metavar="JSON", help="Content filter.")
@output_options
def subscribe(data: Path, client_id: str, filter_: str, out: Output, **options: Any) -> None:
    """Subscribe for a client, connected or not, by its own limits and ACL rules.

    \b
    Examples:
      perdure sessions subscribe pump-7 'plant/+/alarm' -q 1
    """
    print_record(data, SubscribeSession(client_id=client_id, filter=filter_, **options), out)


@click.command()
@data_options
@click.argument("client_id")
@click.argument("filter_", metavar="FILTER")
@output_options
def unsubscribe(data: Path, client_id: str, filter_: str, out: Output) -> None:
    """End a client's subscription; what was matched already is still delivered."""
    print_record(data, UnsubscribeSession(client_id=client_id, filter=filter_), out)


COMMANDS: Final = (inflight, pending, awaiting_release, subscribe, unsubscribe)
