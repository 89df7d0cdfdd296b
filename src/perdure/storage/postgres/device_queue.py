"""Device queues on PostgreSQL: TBMQ's two tables to the column, batched.

What many callers ask at the same time goes to the server as one statement, and so costs one round
trip and one flush of the server's log (``gather``). Unbatched, each request is a transaction of
its own, which is what TBMQ 1.x did; it is there for the comparison.

::

    append, acknowledge, .. -> Gatherer -> statements / queries (pure) -> Pool -> functions in SQL

The server decides numbers, limits, repeats and owners, in functions (``migrations``); nothing is
remembered here, so any number of processes may write.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Self, final

import msgspec

from perdure.errors import Fenced, PerdureError, StorageUnavailable, UsageError
from perdure.storage.device_queue import Appended, NewEntry, QueuePage, QueueStats, check_append
from perdure.storage.postgres import durability, queries, schema, statements
from perdure.storage.postgres.gather import Gatherer
from perdure.storage.postgres.pool import POOL_SIZE, Pool, Statement
from perdure.storage.postgres.queries import Queries
from perdure.storage.postgres.rows import key_of

BATCH_ENTRIES_MAX: Final = 4096
"""Entries, or requests, of one batch."""

# What a read may bring counts for its weight, less than what an append brings: most queues are
# shorter than a page. So much of a page weighs as much as one entry that is appended.
_READ_ENTRIES: Final = 8
_READ_BYTES: Final = 32 * 1024

_LISTED: Final = 500
_SWEEP_STRETCHES: Final = 50
_START: Final = ("", -(2**63))


class _Request(msgspec.Struct, frozen=True):
    """What somebody asks of one client's queue.

    Attributes:
        clients: whose.
        arguments: as the statement's builder wants them.
        weight: entries or identifiers.
        group: requests of different groups are different statements.
    """

    clients: tuple[str, ...]
    arguments: tuple[Any, ...]
    weight: int = 1
    group: int = 0


class _Append(msgspec.Struct, frozen=True):
    entries: Sequence[NewEntry]
    clients: frozenset[str]
    now_us: int
    group: int

    @property
    def weight(self) -> int:
        return len(self.entries)


_Results = Sequence[Any]


@final
class PostgresDeviceQueue:
    """The queues of all persistent clients in one database.

    Args:
        pool: closed with the queue.
        batched: False = every request by itself.
        kept_us: how long a message without an expiry of its own is kept; 0 = for ever.
    """

    def __init__(self, pool: Pool, *, batched: bool = True, kept_us: int = 0) -> None:
        self._pool = pool
        self._kept_us = kept_us
        self._queries = Queries(queries.Shape())
        self._walked = _START
        weight_max = BATCH_ENTRIES_MAX if batched else 0

        def gatherer(run: Callable[[Any], Awaitable[_Results]]) -> Gatherer[Any, Any]:
            return Gatherer(run, workers=pool.size, weight_max=weight_max)

        self._append = gatherer(self._run_append)
        self._read = gatherer(self._run_read)
        self._acknowledge = gatherer(self._counting(statements.acknowledge))
        self._release = gatherer(self._counting(statements.release))
        self._trim = gatherer(self._counting(statements.trim_through))
        self._discard = gatherer(self._counting(statements.discard))
        self._take = gatherer(self._run_take)
        self._stats = gatherer(self._run_stats)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        pool_size: int = POOL_SIZE,
        batched: bool = True,
        durable: durability.Policy = "warn",
        kept_us: int = 0,
    ) -> Self:
        """Connect, bring the tables up to date, and look whether the server is durable.

        Args:
            url: see ``Pool``.
            pool_size: most connections.
            batched, kept_us: as of the class.
            durable: what to do if the server may lose what it has acknowledged.

        Raises:
            ConfigError: the URL, the user's rights, the tables or the server's settings.
            StorageError: the server does not answer, or holds what we cannot read.
        """
        pool = Pool(url, size=pool_size)
        try:
            await schema.migrate(pool)
            await durability.check(pool, durable)
        except BaseException:
            await pool.close()
            raise
        return cls(pool, batched=batched, kept_us=kept_us)

    async def take(self, client_id: str, *, epoch: int) -> QueueStats:
        """See ``DeviceQueue.take``."""
        stats: QueueStats = await self._take.submit(_Request((client_id,), (client_id, epoch)))
        return stats

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        """See ``DeviceQueue.append``."""
        check_append(entries, limit=limit)
        if not entries:
            return []
        clients = frozenset(entry.client_id for entry in entries)
        results: list[Appended] = await self._append.submit(
            _Append(entries, clients, now_us, limit)
        )
        return results

    async def read(
        self, client_id: str, *, after_serial: int, limit: int, bytes_max: int, now_us: int
    ) -> QueuePage:
        """See ``DeviceQueue.read``."""
        if limit < 1:
            raise UsageError(f"a page has 1 entry or more, not {limit}")
        page: queries.Page = await self._read.submit(
            _Request(
                (client_id,),
                (client_id, after_serial, limit, bytes_max),
                max(1, limit // _READ_ENTRIES, bytes_max // _READ_BYTES),
            )
        )
        owed, past = page.split(now_us)
        if past:
            key = key_of(client_id)
            await self._pool.run(
                statements.expire([(key, serial) for serial in past], now_us=now_us)
            )
        return owed

    async def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> int:
        """See ``DeviceQueue.acknowledge``."""
        return await self._count(self._acknowledge, client_id, (epoch, packet_ids), len(packet_ids))

    async def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int = 0
    ) -> int:
        """See ``DeviceQueue.release``."""
        return await self._count(
            self._release, client_id, (epoch, packet_ids, forget_at_us), len(packet_ids)
        )

    async def trim_through(self, client_id: str, serial: int, *, epoch: int) -> int:
        """See ``DeviceQueue.trim_through``."""
        return await self._count(self._trim, client_id, (epoch, serial))

    async def discard(self, client_id: str, *, epoch: int) -> bool:
        """See ``DeviceQueue.discard``."""
        return await self._count(self._discard, client_id, (epoch,)) > 0

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``DeviceQueue.stats``."""
        stats: QueueStats | None = await self._stats.submit(_Request((client_id,), (client_id,)))
        return stats

    async def clients(self, *, after: str = "") -> AsyncIterator[QueueStats]:
        """See ``DeviceQueue.clients``; a client id of more than 255 characters stands where its
        stored form does."""
        async with aclosing(list_rows(self._pool, self._queries, after=after)) as rows:
            async for row in rows:
                yield queries.stats_of(row)

    async def sweep(self, *, now_us: int, limit: int) -> int:
        """See ``DeviceQueue.sweep``; a large store is walked through in several calls."""
        due = await self._pool.run(queries.to_forget(now_us=now_us, limit=limit))
        found = [(row["client_id"], row["serial_number"]) for row in due]
        count = await self._expire(found, now_us)
        if found:
            await self._pool.run(queries.drop_orphans(found))
        begun = self._walked
        for _ in range(_SWEEP_STRETCHES):
            stretch = queries.stretch_of(
                await self._pool.run(
                    queries.walk(self._walked, now_us=now_us, kept_us=self._kept_us)
                )
            )
            past = stretch.past[: limit - count]
            count += await self._expire(past, now_us)
            if len(past) < len(stretch.past):
                # The rest of this stretch is for the next call.
                break
            self._walked = stretch.last or _START
            if count >= limit or (stretch.last is None and begun == _START):
                break
            if stretch.last is None:
                begun = _START
        return count

    async def close(self) -> None:
        """See ``DeviceQueue.close``."""
        gatherers = (
            self._append,
            self._read,
            self._acknowledge,
            self._release,
            self._trim,
            self._discard,
            self._take,
            self._stats,
        )
        for gatherer in gatherers:
            await gatherer.close()
        await self._pool.close()

    async def _count(
        self,
        gatherer: Gatherer[Any, Any],
        client_id: str,
        arguments: tuple[Any, ...],
        weight: int = 1,
    ) -> int:
        request = _Request((client_id,), (client_id, *arguments), max(1, weight))
        count: int = await gatherer.submit(request)
        return count

    async def _expire(self, entries: Sequence[tuple[str, int]], now_us: int) -> int:
        if not entries:
            return 0
        statement = statements.expire(entries, now_us=now_us, kept_us=self._kept_us)
        count: int = (await self._pool.run(statement))[0][0]
        return count

    async def _run_append(self, requests: Sequence[_Append]) -> Sequence[list[Appended]]:
        entries = [entry for request in requests for entry in request.entries]
        plan = statements.AppendPlan(
            entries, now_us=max(request.now_us for request in requests), limit=requests[0].group
        )
        results = plan.results(await self._pool.run_all(plan.statements))
        shares: list[list[Appended]] = []
        start = 0
        for request in requests:
            shares.append(results[start : start + len(request.entries)])
            start += len(request.entries)
        return shares

    async def _run_read(self, requests: Sequence[_Request]) -> Sequence[queries.Page]:
        statement = self._queries.read([request.arguments for request in requests])
        return queries.pages_of(await self._pool.run(statement), len(requests))

    async def _run_take(self, requests: Sequence[_Request]) -> Sequence[QueueStats | PerdureError]:
        wanted: list[tuple[str, int]] = [request.arguments for request in requests]
        owners = statements.owners_of(await self._pool.run(statements.take(wanted)))
        found = await self._run_stats(requests)
        results: list[QueueStats | PerdureError] = []
        for (client_id, epoch), owner, stats in zip(wanted, owners, found, strict=True):
            if owner != epoch:
                results.append(
                    Fenced(f"the queue of {client_id!r} belongs to epoch {owner}, not {epoch}")
                )
            elif stats is None:
                results.append(StorageUnavailable(f"the queue of {client_id!r} was discarded"))
            else:
                results.append(stats)
        return results

    async def _run_stats(self, requests: Sequence[_Request]) -> Sequence[QueueStats | None]:
        keys = [key_of(request.arguments[0]) for request in requests]
        rows = await self._pool.run(self._queries.stats(keys))
        by_key = {row["client_id"]: queries.stats_of(row) for row in rows}
        return [by_key.get(key) for key in keys]

    def _counting(
        self, build: Callable[[Any], Statement]
    ) -> Callable[[Sequence[_Request]], Awaitable[_Results]]:
        async def run(requests: Sequence[_Request]) -> _Results:
            rows = await self._pool.run(build([request.arguments for request in requests]))
            return statements.counts_of([request.arguments[0] for request in requests], rows)

        return run


async def list_rows(
    pool: Pool, reader: Queries, *, after: str
) -> AsyncGenerator[Mapping[str, Any], None]:
    """The rows of ``Queries.stats`` for all clients above one, through a cursor of the server.

    It holds a connection until it is closed: whoever may not read to the end closes it.
    """
    statement = reader.client_keys(after=key_of(after))
    async with pool.connection() as connection, connection.transaction(readonly=True):
        cursor = await connection.cursor(statement.sql, *statement.arguments)
        while rows := await cursor.fetch(_LISTED):
            wanted = reader.stats([row["client_id"] for row in rows])
            for row in await connection.fetch(wanted.sql, *wanted.arguments):
                yield row
