"""A broker's whole state in PostgreSQL: the driver of the profile ``postgres``.

Transactions go over one connection, each as one call of a function where that can be: one round
trip and one commit. Reads go over a pool of their own; they come behind what was committed. The
writer is who holds an advisory lock on its connection, which ends with it, and whose token is in
``perdure_writer``: a commit of an earlier claim finds another one there and is refused.

Knows rows as bytes; names of asyncpg stay in here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, Final, TypeAlias, final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from perdure.errors import (
    ConfigError,
    Fenced,
    FormatTooNew,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageTimeout,
    StorageUnavailable,
)
from perdure.storage.contract import ReadResult
from perdure.storage.remote.driver import TABLES, Claim, Owner, Row, Transaction

FORMAT: Final = 1
KEY_BYTES_MAX: Final = 2000
"""Owner and key that together are longer stand in the table without an order."""

LOCK_CLASS: Final = 0x50455244
"""First half of the advisory lock's name: PERD."""

LOCK_PATIENCE_S: Final = 3.0
"""How long the backend of a broker that has just died may take to see that."""

READ_CONNECTIONS_MAX: Final = 4

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
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float = 5.0,
        command_timeout_s: float = 15.0,
        durability: str = "warn",
    ) -> None:
        self.place = redacted(url)
        self.queue_max = 0
        self._url = url
        self._connect_timeout_s = connect_timeout_s
        self._command_timeout_s = command_timeout_s
        self._writer: _Connection | None = None
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._token = 0
        self._durability = durability
        self._has_long = False

    # -- connecting ------------------------------------------------------------------------

    async def claim(self) -> Claim:
        self._drop_writer()
        async with self._translated():
            connection = await asyncpg.connect(
                self._url, timeout=self._connect_timeout_s, command_timeout=self._command_timeout_s
            )
        self._writer = connection
        try:
            async with self._translated():
                await self._become_writer(connection)
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self._url,
                        min_size=0,
                        max_size=READ_CONNECTIONS_MAX,
                        timeout=self._connect_timeout_s,
                        command_timeout=self._command_timeout_s,
                    )
                return await self._take_token(connection)
        except BaseException:
            self._drop_writer()
            raise

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
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                writer.terminate()
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    # -- writing ---------------------------------------------------------------------------

    async def commit(self, transaction: Transaction) -> None:
        writer = self._writer
        if writer is None:
            raise StorageUnavailable(f"{self.place} is not connected")
        changes = _Changes(transaction)
        async with self._translated():
            if changes.has_long or (self._has_long and changes.may_touch_long):
                async with writer.transaction():
                    await writer.fetchval(
                        _COMMIT, self._token, transaction.number, *changes.arguments
                    )
                    await _apply_long(writer, changes)
                self._has_long = True
            else:
                await writer.fetchval(_COMMIT, self._token, transaction.number, *changes.arguments)

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
        return [0 for _ in client_ids]

    async def read_queue(
        self, client_id: str, *, after_serial: int, until_serial: int, limit: int, bytes_max: int
    ) -> ReadResult:
        return ReadResult([], until_serial)

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise StorageUnavailable(f"{self.place} is not connected")
        async with self._translated(), pool.acquire(timeout=self._connect_timeout_s) as connection:
            yield connection

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        """Errors of asyncpg as errors of ours."""
        try:
            yield
        except StorageError:
            raise
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            self._drop_writer()
            raise StorageTimeout(f"{self.place} does not answer in time") from error
        except asyncpg.PostgresError as error:
            raise self._meaning(error) from error
        except (OSError, asyncpg.InterfaceError) as error:
            raise StorageUnavailable(f"{self.place} cannot be reached: {error}") from error

    def _meaning(self, error: asyncpg.PostgresError) -> StorageError | ConfigError:
        code = str(getattr(error, "sqlstate", "") or "")
        text = f"{self.place}: {error}"
        if code == "PD002":
            return Fenced(f"another broker writes to {self.place}")
        if code == "PD003":
            return StorageCorrupt(text)
        if code in {"28P01", "28000", "3D000"}:
            if self._token:
                return StorageUnavailable(text)  # it was right before, and may be again
            return ConfigError(text, path="storage.postgres.url")
        if code.startswith("53"):
            return StorageFull(text) if code == "53100" else StorageUnavailable(text)
        if code.startswith(("08", "57", "40", "25")):
            return StorageUnavailable(text)
        return StorageError(text)


_COMMIT: Final = (
    "SELECT perdure_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
)


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
