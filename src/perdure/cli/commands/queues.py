"""``perdure queues``: what persistent clients are owed, in any store."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, final

import click
import msgspec

from perdure.admin.records.sessions import DiscardSession, Outcome
from perdure.cli.admin_client import AdminClient
from perdure.cli.commands.sessions import act_on_each, discard_stored
from perdure.cli.data import open_database, storage_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.exporting import TOLD_EVERY, Tell, counting, lines_to
from perdure.cli.output import Column, Output, encode, output_options
from perdure.clock import SystemClock
from perdure.config.schema import StorageConfig
from perdure.config.units import format_size, format_time
from perdure.observe.printable import printable
from perdure.storage.device_queue import QueueStats
from perdure.storage.queue_lines import entry_line

if TYPE_CHECKING:
    from perdure.cli.queue_open import Layout, OpenSource

_F = TypeVar("_F", bound=Callable[..., Any])

_LIST: Final = (
    Column("client_id"),
    Column("publish_count", right=True),
    Column("pubrel_count", right=True),
    Column("payload_bytes", right=True),
    Column("last_packet_id", right=True),
    Column("epoch", right=True),
)
_ENTRIES: Final = (
    Column("packet_id", right=True),
    Column("state"),
    Column("qos", right=True),
    Column("topic"),
    Column("payload_bytes", right=True),
    Column("expires_at", time=True),
)
_SHOWN: Final = 20


@final
class Where(msgspec.Struct, frozen=True):
    """Which store.

    Attributes:
        url: of a server; empty = the data directory.
        is_brokers: the server is where the broker of the data directory keeps its state.
        layout, prefix: of the keys in Redis.
        data: the data directory.
    """

    url: str
    is_brokers: bool
    layout: Layout
    prefix: str | None
    data: Path

    def open(self) -> contextlib.AbstractContextManager[OpenSource[Any]]:
        """The store, to be looked into."""
        # asyncio and a store take a while to load; --help does without.
        from perdure.cli.queue_open import open_directory, open_server

        now_us = SystemClock().now_us()
        if self.url:
            return open_server(self.url, layout=self.layout, prefix=self.prefix, now_us=now_us)
        return open_directory(self.data, now_us=now_us)


def where_options(command: _F) -> _F:
    """Add ``--url``, ``--layout``, ``--prefix`` and ``--data``; the command gets ``where``."""

    @click.option(
        "--url",
        default="",
        envvar="PERDURE_QUEUES_URL",
        metavar="URL",
        help="redis://, rediss://, redis+cluster:// or postgresql://; else where the broker of the "
        "configuration keeps its state. "
        "$PERDURE_QUEUES_URL if not given.",
    )
    @click.option(
        "--layout",
        type=click.Choice(["compact", "tbmq"]),
        default="compact",
        show_default=True,
        help="How the keys in Redis are laid out.",
    )
    @click.option("--prefix", metavar="TEXT", help="Of the keys in Redis; else the layout's own.")
    @storage_options
    @functools.wraps(command)
    def with_where(
        *args: Any,
        url: str,
        layout: Layout,
        prefix: str | None,
        storage: StorageConfig,
        **kwargs: Any,
    ) -> Any:
        is_brokers = not url
        if is_brokers and storage.backend == "postgres":
            url = storage.postgres.url
        elif is_brokers and storage.backend == "redis":
            url, layout, prefix = storage.redis.url, "compact", f"{storage.redis.prefix}:"
        where = Where(url, is_brokers, layout, prefix, Path(storage.path))
        return command(*args, where=where, **kwargs)

    return with_where  # type: ignore[return-value]


@click.group()
def command() -> None:
    """Look into the queues of persistent clients: in a data directory, Redis or PostgreSQL.

    A data directory may be that of a running broker. Data of TBMQ (1.x in PostgreSQL, 2.x in
    Redis with --layout tbmq) are read as they are.

    \b
    Examples:
      perdure queues list
      perdure queues list --url postgresql://tbmq:secret@db/thingsboard_mqtt_broker
      perdure queues show cellar --url redis://localhost --layout tbmq
      perdure queues export --url redis+cluster://node1,node2 --to queues.jsonl
      perdure queues discard cellar
    """


@command.command("list")
@where_options
@output_options
def list_queues(where: Where, out: Output) -> None:
    """List queues with what they hold."""
    with where.open() as opened:
        out.rows(_LIST, (_row(stats) for stats in opened.each(opened.source.queues())))


@command.command()
@where_options
@click.argument("client_id")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="Most entries to show, the oldest.",
)
@output_options
def show(where: Where, client_id: str, limit: int, out: Output) -> None:
    """Show one queue and its oldest entries."""
    with where.open() as opened:
        stats = opened.run(opened.source.stats(client_id))
        if stats is None:
            raise _unknown(client_id)
        found = islice(opened.each(opened.source.entries(client_id)), limit)
        entries = [entry_line(client_id, entry) for entry in found]
    if out.is_json:
        out.record({**_row(stats), "entries": entries})
        return
    row = _row(stats)
    out.record({**row, "payload_bytes": format_size(row["payload_bytes"])})
    if entries:
        out.rows(_ENTRIES, (_short(entry) for entry in entries))


@command.command()
@where_options
@click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to a file, which appears once it is complete; else to standard output.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
def export(where: Where, target: Path | None, no_progress: bool) -> None:
    """Write all queues as lines of JSON.

    One line for each entry, in the order of delivery, and one with the last packet identifier for
    each session.
    """
    text = "{sessions:,} queues, {entries:,} entries"
    with (
        where.open() as opened,
        counting(text, target=target, wanted=not no_progress, sessions=0, entries=0) as tell,
        lines_to(target) as file,
    ):
        _write(opened.each(opened.source.lines()), file, tell)


@command.command()
@where_options
@click.argument("client_ids", nargs=-1, required=True, metavar="CLIENT_ID...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def discard(where: Where, client_ids: tuple[str, ...], yes: bool, out: Output) -> int:
    """Forget clients: their entries, packet identifiers and owners.

    In a data directory a queue is a session, and the session goes: through the running broker, or
    on a stopped one as with `perdure sessions discard`. In a server that a broker uses, stop the
    broker first.
    """
    _confirm(client_ids, yes=yes)
    client = AdminClient.connect(where.data) if where.is_brokers else None
    if client is not None:
        with client:
            return act_on_each(
                client_ids, lambda one: client.call(DiscardSession(client_id=one)), out
            )
    if where.url:
        with where.open() as opened:
            source = opened.source
            return act_on_each(
                client_ids,
                lambda client_id: _discarded(client_id, opened.run(source.discard(client_id))),
                out,
            )
    with open_database(where.data, read_only=False) as database:
        return act_on_each(client_ids, lambda one: database.run(discard_stored(database, one)), out)


def _row(stats: QueueStats) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(stats)
    return row


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry where a person reads: the size of its payload, and its end as a date."""
    encoded: str = entry["payload_base64"]
    size = len(encoded) // 4 * 3 - encoded.count("=")
    ends: int | None = entry["expires_at"]
    expires_at = None if ends is None else format_time(ends * 1000)
    return {**entry, "payload_bytes": size, "expires_at": expires_at}


def _write(lines: Iterator[dict[str, Any]], file: TextIO, tell: Tell) -> None:
    entries = sessions = 0
    for line in lines:
        file.write(f"{encode(line)}\n")
        if "state" in line:
            entries += 1
        else:
            sessions += 1
        if not (entries + sessions) % TOLD_EVERY:
            tell(0, sessions=sessions, entries=entries)


def _confirm(client_ids: tuple[str, ...], *, yes: bool) -> None:
    """Have the client id typed back: what is deleted here nobody can bring back.

    Raises:
        click.UsageError: nobody is there to ask, or what was typed is something else.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask on: take --yes")
    for client_id in client_ids:
        shown = printable(client_id)
        typed = click.prompt(f"Type {shown} to forget it", err=True, default="", show_default=False)
        if typed != shown:
            raise click.UsageError("that is another client id: nothing was deleted")


def _discarded(client_id: str, done: bool) -> Outcome:
    if not done:
        raise _unknown(client_id)
    return Outcome(client_id, "discarded")


def _unknown(client_id: str) -> CommandFailed:
    return CommandFailed(f"there is no queue of {client_id!r}", ExitCode.NOT_FOUND)
