"""A broker's whole state in PostgreSQL, read: rows and queues, over connections of a pool.

Knows rows as bytes. It claims nothing and writes nothing, so it works beside the broker whose
state it is; ``driver`` adds the writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from perdure.errors import StorageUnavailable
from perdure.storage.contract import ReadResult
from perdure.storage.postgres.pool import Pool, Statement
from perdure.storage.postgres.queries import Queries, Shape, pages_of, stats_of
from perdure.storage.postgres.rows import key_of
from perdure.storage.postgres.transactions import KINDS, OWN, is_long, long_id
from perdure.storage.remote.driver import Owner, Row, messages_of

BYTES_MAX_NONE: Final = (1 << 31) - 1


def redacted(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if at and ":" in login:
        login = login.partition(":")[0] + ":***"
    return urlunsplit(parts._replace(netloc=login + at + hosts, query=""))


class PostgresState:
    """The state in one database and schema.

    Args:
        url: ``postgresql://user:password@host/database``.
        connect_timeout_s: for one attempt to connect.
        command_timeout_s: for one statement; after it the connection is given up.

    Attributes:
        place: the server as a person knows it, without secrets.
    """

    def __init__(self, url: str, *, connect_timeout_s: float, command_timeout_s: float) -> None:
        self.place = redacted(url)
        self._url = url
        self._connect_timeout_s = connect_timeout_s
        self._command_timeout_s = command_timeout_s
        self._pool: Pool | None = None
        self._queries = Queries(Shape())
        self._has_long = False

    def _make_pool(self) -> Pool:
        return Pool(
            self._url,
            connect_timeout_s=self._connect_timeout_s,
            command_timeout_s=self._command_timeout_s,
        )

    async def look(self) -> bool:
        """Connect for reading alone, beside the writer; False = no broker keeps its state here."""
        pool = self._pool = self._make_pool()
        ((is_there,),) = await pool.run(
            Statement("SELECT to_regclass('perdure_state_long') IS NOT NULL")
        )
        if is_there:
            some = Statement("SELECT EXISTS (SELECT FROM perdure_state_long)")
            ((self._has_long,),) = await pool.run(some)
        return bool(is_there)

    async def close(self) -> None:
        """Give the connections back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def get(self, wanted: Sequence[tuple[str, Owner, bytes]]) -> list[bytes | None]:
        places = [(KINDS[table], owner, key) for table, owner, key in wanted]
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
            if self._has_long and any(is_long(owner, key) for _, owner, key in places):
                ids = [long_id(*place) for place in places if is_long(place[1], place[2])]
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
        arguments = (KINDS[table], owner, start, end, min(limit, (1 << 31) - 1))
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
                    KINDS[table],
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
        for entry in page.entries:
            entry.message.publisher = client_id if entry.extra == OWN else ""
        return messages_of(page.entries, page.next_after, until_serial=until_serial)

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise StorageUnavailable(f"{self.place} is not connected")
        async with pool.connection() as connection:
            yield connection
