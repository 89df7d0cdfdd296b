"""``perdure api-keys``: how programs get into the HTTP API."""

from __future__ import annotations

from typing import Final

import click

from perdure.cli.data import broker_options
from perdure.cli.identity_file import local_actor, open_ledger
from perdure.cli.output import Column, Output, output_options
from perdure.config.schema import Config
from perdure.identity.expiry import expiry_us
from perdure.identity.keys import Keys
from perdure.identity.records import ROLES
from perdure.identity.rows import key_fields

_COLUMNS: Final = (
    Column("id"),
    Column("name"),
    Column("role"),
    Column("created_by"),
    Column("expires_at", time=True),
    Column("last_used_at", time=True),
)


@click.group()
def command() -> None:
    """List, add and revoke API keys.

    A key is shown once, when it is made; the broker keeps its hash. Programs send it as
    `Authorization: Bearer KEY`. A revoked key holds no more at once.

    \b
    Examples:
      perdure api-keys add grafana --role viewer --expires 365d
      perdure api-keys add line-7 --role operator --scope messages --topic 'plant/7/#'
      perdure api-keys list
      perdure api-keys revoke 3f9a0c2d11
    """


@command.command("list")
@broker_options
@output_options
def list_keys(config: Config, out: Output) -> None:
    """List the keys, without their secrets."""
    with open_ledger(config) as ledger:
        out.rows(_COLUMNS, [key_fields(each) for each in Keys(ledger).all()])


@command.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do at most.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE",
              help="An operation (sessions.kick) or resource (sessions) that it may have below "
                   "that; all by default. May be repeated.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="FILTER",
              help="Topics that it may read and publish; all by default.")  # fmt: skip
@click.option("--expires", default="", metavar="WHEN",
              help="How long it holds (90d), or until when; for ever if not given.")  # fmt: skip
@broker_options
@output_options
def add(
    name: str,
    role: str,
    scopes: tuple[str, ...],
    topics: tuple[str, ...],
    expires: str,
    config: Config,
    out: Output,
) -> None:
    """Make a key and print it: it is shown this once."""
    with open_ledger(config) as ledger:
        key, secret = Keys(ledger).add(
            name,
            role,
            local_actor(),
            scopes=scopes,
            topic_filters=topics,
            expires_at_us=expiry_us(expires, ledger.clock.now_us()),
        )
        if out.is_json:
            out.record({**key_fields(key), "secret": secret})
        else:
            out.text(f"{secret}\n")


@command.command()
@click.argument("key_id", metavar="ID")
@broker_options
@output_options
def revoke(key_id: str, config: Config, out: Output) -> None:
    """Take a key back."""
    with open_ledger(config) as ledger:
        Keys(ledger).revoke(key_id, local_actor())
        out.record({"id": key_id, "action": "revoked"})
