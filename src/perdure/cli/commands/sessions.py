"""``perdure sessions``: asks the running broker, or reads the state of a stopped one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.explain import ExplainSession, What
from perdure.admin.records.sessions import (
    DiscardSession,
    GetSession,
    GiveSession,
    KickSession,
    ListSessions,
    Outcome,
    SessionRow,
    SessionSort,
    State,
)
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import OpenDatabase, confirm, data_options, open_database, storage_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, cell, error_line, output_options
from perdure.cli.running_broker import not_running
from perdure.cli.session_parts import COMMANDS
from perdure.cli.state_open import open_stored
from perdure.clock import SystemClock
from perdure.config.schema import StorageConfig
from perdure.errors import MqttError
from perdure.limits import REMAINING_LENGTH_MAX
from perdure.storage.batch import Batch

_LIST = (
    Column("client_id"),
    Column("state"),
    Column("username"),
    Column("protocol"),
    Column("changed_at", time=True),
    Column("expires_at", time=True),
    Column("dropped_count", right=True),
)

INBOX_PAGE = 256


@click.group()
def command() -> None:
    """List, show, explain and discard sessions, and give them to other users.

    They ask the running broker through its admin socket; if none runs, they read the data
    directory, or the server that the configuration names.

    \b
    Examples:
      perdure sessions list --state offline
      perdure sessions list --sort -changed_at -n 20
      perdure sessions show cellar
      perdure sessions explain cellar devices/7/temperature
      perdure sessions discard cellar --yes
    """


@command.command("list")
@storage_options
@click.option("--state", type=click.Choice(["connected", "offline", "expired"]))
@click.option("--prefix", default="", help="Only client ids that begin so.")
@click.option("--contains", default="", metavar="TEXT", help="Only client ids that hold this.")
@click.option("--username", metavar="NAME", help="Only of this user; empty = anonymous clients.")
@click.option("--sort", type=click.Choice([each for each in get_args(SessionSort) if each]),
              help="A column, - before it for the greatest first; else client_id.")  # fmt: skip
@click.option("--number", "-n", type=click.IntRange(0), default=0,
              help="Show so many, the first ones; 0 = all.")  # fmt: skip
@output_options
def list_sessions(
    storage: StorageConfig,
    state: State | None,
    prefix: str,
    contains: str,
    username: str | None,
    sort: SessionSort | None,
    number: int,
    out: Output,
) -> None:
    """List sessions, in the order of their client ids or of a column.

    changed_at is when a session was connected, or left. Another order than that of client ids is
    refused for more than 10,000 sessions (100,000 with --state connected): narrow the list then.
    `perdure top` has the connected sessions with the longest queue.
    """
    request = ListSessions(
        limit=min(number or PAGE_MAX, PAGE_MAX),
        prefix=prefix,
        state=state,
        client_id_like=contains,
        username=username,
        sort=sort or "",
    )
    client = AdminClient.connect(Path(storage.path))
    if client is not None:
        with client:
            found = itertools.islice(client.items(request), number or None)
            out.rows(_LIST, map(msgspec.to_builtins, found))
        return
    from perdure.server.administration.sorting import sessions_in_order

    with open_stored(storage) as (database, opened):
        now_us = SystemClock().now_us()

        def rows(asked: ListSessions) -> Iterator[SessionRow]:
            while True:
                page = opened.run(sessions_in_order(database, asked, now_us))
                yield from page.items
                if page.next_cursor is None:
                    return
                asked = msgspec.structs.replace(asked, cursor=page.next_cursor)

        first = itertools.islice(rows(request), number or None)
        out.rows(_LIST, map(msgspec.to_builtins, first))


@command.command()
@storage_options
@click.argument("client_id")
@output_options
def show(storage: StorageConfig, client_id: str, out: Output) -> None:
    """Show everything about one session."""
    client = AdminClient.connect(Path(storage.path))
    if client is not None:
        with client:
            shown = client.call(GetSession(client_id=client_id))
        out.record(_for_people(msgspec.to_builtins(shown), out))
        return
    from perdure.server.inspect import session_details

    with open_stored(storage) as (database, opened):
        details = opened.run(
            session_details(database, client_id, SystemClock().now_us(), running=False)
        )
    if details is None:
        raise _unknown(client_id)
    out.record(_for_people(msgspec.to_builtins(details), out))


def _for_people(details: dict[str, Any], out: Output) -> dict[str, Any]:
    """Subscriptions as short texts, where a person reads."""
    if out.is_json:
        return details
    subscriptions = [
        f"{sub['filter']} (QoS {sub['qos']})" for sub in details.get("subscriptions", [])
    ]
    return {**details, "subscriptions": subscriptions}


@command.command()
@storage_options
@click.argument("client_id")
@click.argument("topic")
@click.option("--from", "publisher", metavar="CLIENT_ID", help="Published by this client.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), help="Published with this QoS.")
@click.option("--size", type=click.IntRange(0, REMAINING_LENGTH_MAX), metavar="BYTES",
              help="Payload of this size.")  # fmt: skip
@output_options
def explain(
    storage: StorageConfig,
    client_id: str,
    topic: str,
    publisher: str | None,
    qos: int | None,
    size: int | None,
    out: Output,
) -> None:
    """Say why messages on TOPIC are, or are not, delivered to a session.

    The verdict is about a message like the last that is recorded on the topic, or like the one
    that --from, --qos and --size describe. The ACL, bans, and the client's packet size are known
    to a running broker only.
    """
    client = AdminClient.connect(Path(storage.path))
    if client is not None:
        with client:
            explained = client.call(
                ExplainSession(
                    client_id=client_id, topic=topic, publisher=publisher, qos=qos, size=size
                )
            )
        _explained(msgspec.to_builtins(explained), out)
        return
    from perdure.server.explain import explain as explain_session

    with open_stored(storage) as (database, opened):
        try:
            found = opened.run(
                explain_session(
                    database,
                    client_id,
                    topic,
                    SystemClock().now_us(),
                    running=False,
                    what=What(publisher=publisher, qos=qos, size=size),
                )
            )
        except MqttError as error:
            raise CommandFailed(f"{topic!r}: {error.message}", ExitCode.DATA) from error
    if found is None:
        raise _unknown(client_id)
    _explained(msgspec.to_builtins(found), out)


def _explained(row: dict[str, Any], out: Output) -> None:
    if out.is_json:
        out.record(row)
        return
    out.rows(
        (Column("check"), Column("ok"), Column("detail", prose=True)),
        ({**finding, "ok": finding["ok"]} for finding in row["findings"]),
    )
    reason = cell(row["reason"])
    if out.format == "table":
        from perdure.cli.table import short_stamps

        reason = short_stamps(reason)
    click.echo(f"{row['verdict']}: {reason}", err=True)


@command.command()
@data_options
@click.argument("client_ids", nargs=-1, required=True, metavar="CLIENT_ID...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def discard(data: Path, client_ids: tuple[str, ...], yes: bool, out: Output) -> int:
    """Delete sessions with all they hold; a connected client is disconnected.

    On a stopped broker, a session that has a will or a place in a shared group ends at the next
    start instead, so that its will is sent and its messages pass to the others.
    """
    confirm(f"Delete {_count(client_ids)} and all they hold?", yes=yes)
    client = AdminClient.connect(data)
    if client is not None:
        with client:
            return act_on_each(
                client_ids,
                lambda client_id: client.call(DiscardSession(client_id=client_id)),
                out,
            )
    with open_database(data, read_only=False) as opened:
        return act_on_each(
            client_ids, lambda client_id: opened.run(discard_stored(opened, client_id)), out
        )


async def discard_stored(opened: OpenDatabase, client_id: str) -> Outcome:
    """Delete a session of a stopped broker, or let it end at the next start."""
    database = opened.database
    stored = await database.open_session(client_id)
    if stored is None:
        raise _unknown(client_id)
    batch = Batch()
    shares = any(sub.group for sub in stored.subscriptions)
    if stored.record.will is None and not shares and not await _holds_shares(opened, client_id):
        batch.discard_session(client_id)
        action = "discarded"
    else:
        # The broker knows how a session ends: who gets its will and its share. Expired sessions
        # are the first thing that it looks at, and no client can resume one.
        batch.put_session(
            msgspec.structs.replace(
                stored.record, epoch=stored.record.epoch + 1, connected=False, expires_at_us=1
            )
        )
        action = "ends_at_start"
    database.submit(batch, 0)
    database.sync()
    return Outcome(client_id, action)


async def _holds_shares(opened: OpenDatabase, client_id: str) -> bool:
    """Whether messages of a shared group wait in a session's private stream."""
    after = 0
    until = opened.database.last_offset
    while True:
        entries = await opened.database.read_inbox(
            client_id, after_offset=after, until_offset=until, limit=INBOX_PAGE
        )
        if any(entry.group_key for entry in entries):
            return True
        if len(entries) < INBOX_PAGE:
            return False
        after = entries[-1].offset


@command.command()
@data_options
@click.argument("client_ids", nargs=-1, required=True, metavar="CLIENT_ID...")
@output_options
def kick(data: Path, client_ids: tuple[str, ...], out: Output) -> int:
    """Disconnect clients; their sessions stay. Needs a running broker."""
    client = AdminClient.connect(data)
    if client is None:
        raise not_running(data)
    with client:
        return act_on_each(
            client_ids, lambda client_id: client.call(KickSession(client_id=client_id)), out
        )


@command.command("set-owner")
@data_options
@click.argument("client_ids", nargs=-1, required=True, metavar="CLIENT_ID...")
@click.option("--user", "username", metavar="NAME", help="The user that they belong to.")
@click.option("--anonymous", is_flag=True, help="They belong to clients without a user name.")
@output_options
def set_owner(
    data: Path, client_ids: tuple[str, ...], username: str | None, anonymous: bool, out: Output
) -> int:
    """Give sessions to a user, with all they hold, as after a user was renamed.

    A connected client is disconnected, and can resume the session as that user only.
    """
    if anonymous == bool(username):
        raise click.UsageError("name the new owner with --user, or take --anonymous")
    owner = username or ""
    client = AdminClient.connect(data)
    if client is not None:
        with client:
            return act_on_each(
                client_ids,
                lambda client_id: client.call(GiveSession(client_id=client_id, username=owner)),
                out,
            )
    with open_database(data, read_only=False) as opened:
        return act_on_each(
            client_ids, lambda client_id: opened.run(give_stored(opened, client_id, owner)), out
        )


async def give_stored(opened: OpenDatabase, client_id: str, username: str) -> Outcome:
    """Give a session of a stopped broker to a user; empty = to anonymous clients."""
    from perdure.broker.auth.owning import given_to

    database = opened.database
    stored = await database.open_session(client_id)
    if stored is None:
        raise _unknown(client_id)
    owner, method = given_to(username, method=stored.record.method)
    batch = Batch()
    batch.put_session(msgspec.structs.replace(stored.record, username=owner, method=method))
    database.submit(batch, 0)
    database.sync()
    return Outcome(client_id, "given")


def act_on_each(client_ids: tuple[str, ...], act: Callable[[str], Outcome], out: Output) -> int:
    """Act on each client id, tell each outcome, and go on past those that are not there."""
    missing = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal missing
        for client_id in client_ids:
            try:
                yield msgspec.to_builtins(act(client_id))
            except CommandFailed as error:
                if error.exit_code is not ExitCode.NOT_FOUND:
                    raise
                missing += 1
                error_line(error.message)

    out.rows((Column("client_id"), Column("action")), rows())
    return ExitCode.NOT_FOUND if missing else ExitCode.OK


def _count(client_ids: tuple[str, ...]) -> str:
    return f"session {client_ids[0]!r}" if len(client_ids) == 1 else f"{len(client_ids)} sessions"


def _unknown(client_id: str) -> CommandFailed:
    return CommandFailed(f"there is no session {client_id!r}", ExitCode.NOT_FOUND)


for each in COMMANDS:
    command.add_command(each)
