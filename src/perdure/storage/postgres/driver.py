"""A broker's whole state in PostgreSQL: the driver of the profile ``postgres``.

Transactions go over one connection, each as one call of a function where that can be: one round
trip and one commit. Reads go over other connections, behind what was committed. Queues are those
of ``device_queue``: TBMQ's two tables, without an owner's epoch. The
writer is who holds an advisory lock on its connection, which ends with it, and whose token is in
``perdure_writer``: a commit of an earlier claim finds another one there and is refused.

Knows rows as bytes; names of asyncpg stay in here.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, Final, TypeAlias, final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec

from perdure.errors import (
    ConfigError,
    Fenced,
    FormatTooNew,
    PerdureError,
    StorageCorrupt,
    StorageLocked,
    StorageUnavailable,
)
from perdure.model import Message
from perdure.storage.contract import ReadResult
from perdure.storage.device_queue import QUEUE_LIMIT_MAX
from perdure.storage.postgres import durability, errors, schema
from perdure.storage.postgres.pool import Pool, Statement
from perdure.storage.postgres.queries import Queries, Shape, pages_of, stats_of
from perdure.storage.postgres.rows import key_of
from perdure.storage.postgres.statements import AppendPlan
from perdure.storage.remote.driver import TABLES, Claim, Owner, Row, Transaction

FORMAT: Final = 1
KEY_BYTES_MAX: Final = 2000
"""Owner and key that together are longer stand in the table without an order."""

LOCK_CLASS: Final = 0x50455244
"""First half of the advisory lock's name: PERD."""

LOCK_PATIENCE_S: Final = 3.0
"""How long the backend of a broker that has just died may take to see that."""

QUEUE_MAX: Final = 65_000
"""Below the number of packet identifiers, so that none is ever needed twice."""

BYTES_MAX_NONE: Final = (1 << 31) - 1

_OWN: Final = b"own"
"""With an entry of a client's own message: the tables have no place for the publisher."""

_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_KINDS: Final = {table: number for number, table in enumerate(TABLES, 1)}


def redacted(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if at and ":" in login:
        login = login.partition(":")[0] + ":***"
    return urlunsplit(parts._replace(netloc=login + at + hosts, query=""))


@final
class PostgresDriver:
    """A ``storage.remote.driver.Driver`` on PostgreSQL.

    Args:
        url: ``postgresql://user:password@host/database``.
        connect_timeout_s: for one attempt to connect.
        command_timeout_s: for one statement; after it the connection is given up.
        policy: what to do about a server that may lose what it has acknowledged.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float = 5.0,
        command_timeout_s: float = 15.0,
        policy: durability.Policy = "warn",
    ) -> None:
        self.place = redacted(url)
        self.queue_max = QUEUE_MAX
        self._url = url
        self._connect_timeout_s = connect_timeout_s
        self._command_timeout_s = command_timeout_s
        self._writer: _Connection | None = None
        self._pool: Pool | None = None
        self._queries = Queries(Shape())
        self._token = 0
        self._policy = policy
        self._has_long = False

    # -- connecting ------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closed()

    async def claim(self) -> Claim:
        self._drop_writer()
        async with self._translated():
            try:
                connection = await asyncpg.connect(
                    self._url,
                    timeout=self._connect_timeout_s,
                    command_timeout=self._command_timeout_s,
                    server_settings={"application_name": "perdure", "jit": "off"},
                )
            except ValueError as error:
                raise ConfigError(str(error), path="storage.postgres.url") from error
        self._writer = connection
        try:
            async with self._translated():
                await self._become_writer(connection)
                pool = self._pool
                if pool is None:
                    pool = Pool(
                        self._url,
                        connect_timeout_s=self._connect_timeout_s,
                        command_timeout_s=self._command_timeout_s,
                    )
                    await durability.check(pool, self._policy)
                    await schema.migrate(pool)
                    self._pool = pool
                return await self._take_token(connection)
        except BaseException:
            self._drop_writer()
            raise

    async def look(self) -> bool:
        """Connect for reading alone, beside the writer; False = no broker keeps its state here."""
        pool = self._pool = Pool(
            self._url,
            connect_timeout_s=self._connect_timeout_s,
            command_timeout_s=self._command_timeout_s,
        )
        ((is_there,),) = await pool.run(
            Statement("SELECT to_regclass('perdure_state_long') IS NOT NULL")
        )
        if is_there:
            some = Statement("SELECT EXISTS (SELECT FROM perdure_state_long)")
            ((self._has_long,),) = await pool.run(some)
        return bool(is_there)

    async def _become_writer(self, connection: _Connection) -> None:
        name = await connection.fetchval("SELECT hashtext(current_schema())")
        waited = 0.0
        while not await connection.fetchval(
            "SELECT pg_try_advisory_lock($1, $2)", LOCK_CLASS, name
        ):
            if self._token:
                # It is our own connection that the server has not given up yet, or another's;
                # the token tells when the lock is free.
                await connection.execute(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l, perdure_writer AS w "
                    "WHERE l.locktype = 'advisory' AND l.classid = $1::bigint::oid "
                    "AND l.objid = ($2::integer::bigint & 4294967295)::oid AND l.granted "
                    "AND w.token = $3",
                    LOCK_CLASS,
                    name,
                    self._token,
                )
            elif waited >= LOCK_PATIENCE_S:
                raise StorageLocked(
                    f"{self.place} is in use by another broker",
                    hint="stop that broker, or give this one another database or schema",
                )
            if waited >= self._command_timeout_s:
                raise StorageUnavailable(f"{self.place} keeps a lost connection")
            await asyncio.sleep(0.1)
            waited += 0.1

    async def _take_token(self, connection: _Connection) -> Claim:
        async with connection.transaction():
            text = resources.files(__package__).joinpath("state.sql").read_text(encoding="utf-8")
            await connection.execute(text)
            stored = await connection.fetchrow(
                "SELECT format, token, number FROM perdure_writer FOR UPDATE"
            )
            if stored is None:
                raise StorageCorrupt(f"{self.place} has no row in perdure_writer")
            if stored["format"] > FORMAT:
                raise FormatTooNew(f"{self.place} was written by a later release")
            if self._token and stored["token"] != self._token:
                raise Fenced(f"another broker has written to {self.place}")
            token: int = stored["token"] + 1
            await connection.execute("UPDATE perdure_writer SET token = $1", token)
            self._has_long = await connection.fetchval(
                "SELECT EXISTS (SELECT FROM perdure_state_long)"
            )
        self._token = token
        return Claim(stored["number"])

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.terminate()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                await writer.close(timeout=self._connect_timeout_s)
            except errors.RAISED:
                writer.terminate()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    # -- writing ---------------------------------------------------------------------------

    async def commit(self, transaction: Transaction) -> None:
        writer = self._writer
        if writer is None:
            raise StorageUnavailable(f"{self.place} is not connected")
        changes = _Changes(transaction)
        head, rest = _statements(self._token, transaction, changes)
        touches_long = changes.has_long or (self._has_long and changes.may_touch_long)
        async with self._translated():
            if not rest and not touches_long:
                await writer.fetchval(head.sql, *head.arguments)
                return
            async with writer.transaction():
                if await writer.fetchval(head.sql, *head.arguments):
                    for statement in rest:
                        await writer.fetch(statement.sql, *statement.arguments)
                    if touches_long:
                        await _apply_long(writer, changes)
        self._has_long = self._has_long or changes.has_long

    # -- reading ---------------------------------------------------------------------------

    async def get(self, wanted: Sequence[tuple[str, Owner, bytes]]) -> list[bytes | None]:
        places = [(_KINDS[table], owner, key) for table, owner, key in wanted]
        async with self._reader() as connection:
            found = await connection.fetch(
                "SELECT s.kind, s.owner, s.key, s.value FROM perdure_state AS s JOIN "
                "unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS w (kind, owner, key) "
                "ON s.kind = w.kind AND s.owner = w.owner AND s.key = w.key",
                [kind for kind, _, _ in places],
                [owner for _, owner, _ in places],
                [key for _, _, key in places],
            )
            values = {(row[0], row[1], row[2]): row[3] for row in found}
            if self._has_long and any(_is_long(owner, key) for _, owner, key in places):
                ids = [_long_id(*place) for place in places if _is_long(place[1], place[2])]
                for row in await connection.fetch(
                    "SELECT kind, owner, key, value FROM perdure_state_long WHERE id = ANY ($1)",
                    ids,
                ):
                    values[row[0], row[1], row[2]] = row[3]
        return [values.get(place) for place in places]

    async def scan(
        self,
        table: str,
        owner: Owner,
        *,
        start: bytes,
        end: bytes,
        limit: int,
        names_only: bool = False,
    ) -> list[Row]:
        value = "''::bytea" if names_only else "value"
        bound = "AND key < $4" if end else "AND $4 = ''::bytea"
        arguments = (_KINDS[table], owner, start, end, min(limit, (1 << 31) - 1))
        found: list[Row] = []
        async with self._reader() as connection:
            for place in ("perdure_state", "perdure_state_long")[: 2 if self._has_long else 1]:
                page = await connection.fetch(
                    f"SELECT key, {value} FROM {place} "  # noqa: S608 - our own words only
                    f"WHERE kind = $1 AND owner = $2 AND key >= $3 {bound} "
                    "ORDER BY key LIMIT $5",
                    *arguments,
                )
                found += [(row[0], row[1]) for row in page]
        if self._has_long:
            found.sort()
            del found[limit:]
        return found

    async def rows_of(self, table: str, owners: Sequence[Owner]) -> list[list[Row]]:
        found: dict[bytes, list[Row]] = {owner: [] for owner in owners}
        async with self._reader() as connection:
            for place in ("perdure_state", "perdure_state_long")[: 2 if self._has_long else 1]:
                page = await connection.fetch(
                    f"SELECT owner, key, value FROM {place} "  # noqa: S608 - our own words only
                    "WHERE kind = $1 AND owner = ANY ($2)",
                    _KINDS[table],
                    list(owners),
                )
                for row in page:
                    found[row[0]].append((row[1], row[2]))
        return [sorted(found[owner]) for owner in owners]

    async def queue_sizes(self, client_ids: Sequence[str]) -> list[int]:
        statement = self._queries.stats([key_of(client_id) for client_id in client_ids])
        async with self._reader() as connection:
            found = await connection.fetch(statement.sql, *statement.arguments)
        sizes = {}
        for row in found:
            stats = stats_of(row)
            sizes[stats.client_id] = stats.publish_count + stats.pubrel_count
        return [sizes.get(client_id, 0) for client_id in client_ids]

    async def read_queue(
        self, client_id: str, *, after_serial: int, until_serial: int, limit: int, bytes_max: int
    ) -> ReadResult:
        most = min(bytes_max or BYTES_MAX_NONE, BYTES_MAX_NONE)
        statement = self._queries.read([(client_id, after_serial, limit, most)])
        async with self._reader() as connection:
            (page,) = pages_of(await connection.fetch(statement.sql, *statement.arguments), 1)
        messages: list[Message] = []
        for entry in page.entries:
            if entry.serial > until_serial:
                return ReadResult(messages, until_serial)
            message = entry.message
            message.offset = entry.serial
            message.publisher = client_id if entry.extra == _OWN else ""
            messages.append(message)
        through = until_serial if page.next_after is None else min(page.next_after, until_serial)
        return ReadResult(messages, through)

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise StorageUnavailable(f"{self.place} is not connected")
        async with pool.connection() as connection:
            yield connection

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        """Errors of asyncpg as errors of ours."""
        try:
            yield
        except errors.RAISED as error:
            if errors.is_connection_lost(error):
                self._drop_writer()
            raise self._meaning(error) from error

    def _meaning(self, error: BaseException) -> PerdureError:
        code = getattr(error, "sqlstate", None)
        if code == "PD002":
            return Fenced(f"another broker writes to {self.place}")
        if code == "PD003":
            return StorageCorrupt(f"{self.place}: {error}")
        meant = errors.translate(error)
        if isinstance(meant, ConfigError) and self._token:
            # It was right before, and may be again.
            return StorageUnavailable(meant.message, hint=meant.hint)
        return meant


_COMMIT: Final = f"SELECT perdure_commit({', '.join(f'${n}' for n in range(1, 15))})"
_COMMIT_WITH_QUEUES: Final = (
    f"SELECT perdure_commit_with_queues({', '.join(f'${n}' for n in range(1, 41))})"
)
_APPEND_ARGUMENTS: Final = 23


def _statements(
    token: int, transaction: Transaction, changes: _Changes
) -> tuple[Statement, list[Statement]]:
    """The first statement of a transaction, which says whether it is new, and the others."""
    arguments = (token, transaction.number, *changes.arguments)
    if not (transaction.discarded or transaction.queue_trims or transaction.appends):
        return Statement(_COMMIT, arguments), []
    entries = [
        msgspec.structs.replace(entry, extra=_OWN)
        if entry.message.publisher == entry.client_id
        else entry
        for queued in transaction.appends.values()
        for entry in queued
    ]
    appends: list[Statement] = []
    if entries:
        plan = AppendPlan(entries, now_us=time.time_ns() // 1000, limit=QUEUE_LIMIT_MAX)
        appends = plan.statements
    first = appends[0].arguments if appends else (None,) * _APPEND_ARGUMENTS
    trims = transaction.queue_trims
    queues = (
        [key_of(client_id) for client_id in transaction.discarded] or None,
        [key_of(client_id) for client_id in trims] or None,
        list(trims.values()) or None,
    )
    return Statement(_COMMIT_WITH_QUEUES, (*arguments, *queues, *first)), appends[1:]


@final
class _Changes:
    """The rows of a transaction as arrays, and those that have a table of their own."""

    def __init__(self, transaction: Transaction) -> None:
        self.long_puts: list[tuple[bytes, int, bytes, bytes, bytes]] = []
        self.long_gone: list[bytes] = []
        puts: list[tuple[int, bytes, bytes, bytes]] = []
        gone: list[tuple[int, bytes, bytes]] = []
        for (table, owner), changed in transaction.puts.items():
            kind = _KINDS[table]
            for key, value in changed.items():
                if _is_long(owner, key):
                    place = _long_id(kind, owner, key)
                    if value is None:
                        self.long_gone.append(place)
                    else:
                        self.long_puts.append((place, kind, owner, key, value))
                elif value is None:
                    gone.append((kind, owner, key))
                else:
                    puts.append((kind, owner, key, value))
        self.dropped = [(_KINDS[table], owner) for table, owner in transaction.dropped]
        self.trimmed = [
            (_KINDS[table], owner, through)
            for (table, owner), through in transaction.trimmed.items()
        ]
        self.has_long = bool(self.long_puts or self.long_gone)
        self.may_touch_long = bool(self.dropped or self.trimmed)
        self.arguments: list[Any] = [
            *_columns(self.dropped, 2),
            *_columns(self.trimmed, 3),
            *_columns(gone, 3),
            *_columns(puts, 4),
        ]


def _columns(found: Sequence[tuple[Any, ...]], count: int) -> list[Any]:
    if not found:
        return [None] * count
    return [list(column) for column in zip(*found, strict=True)]


async def _apply_long(connection: Any, changes: _Changes) -> None:
    """The same changes on the table of long keys."""
    for kind, owner in changes.dropped:
        await connection.execute(
            "DELETE FROM perdure_state_long WHERE kind = $1 AND owner = $2", kind, owner
        )
    for kind, owner, through in changes.trimmed:
        await connection.execute(
            "DELETE FROM perdure_state_long WHERE kind = $1 AND owner = $2 AND key <= $3",
            kind,
            owner,
            through,
        )
    if changes.long_gone:
        await connection.execute(
            "DELETE FROM perdure_state_long WHERE id = ANY ($1)", changes.long_gone
        )
    for put in changes.long_puts:
        await connection.execute(
            "INSERT INTO perdure_state_long (id, kind, owner, key, value) "
            "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET value = excluded.value",
            *put,
        )


def _is_long(owner: bytes, key: bytes) -> bool:
    return len(owner) + len(key) > KEY_BYTES_MAX


def _long_id(kind: int, owner: bytes, key: bytes) -> bytes:
    return hashlib.sha256(b"%d %d %b%b" % (kind, len(owner), owner, key)).digest()
