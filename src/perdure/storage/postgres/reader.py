"""Looking into the queues of a database without changing anything: tools and exports.

It needs no table of ours, and not all columns of TBMQ's, so it reads what TBMQ 1.x left behind as
it is. The one thing that it can change is to delete a client, on request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Self, final

from perdure.errors import ConfigError, Fenced
from perdure.storage.device_queue import QueuePage, QueueStats
from perdure.storage.postgres import queries, schema, statements
from perdure.storage.postgres.device_queue import list_rows
from perdure.storage.postgres.pool import Pool, Statement
from perdure.storage.postgres.queries import Queries
from perdure.storage.postgres.rows import key_of

_POOL_SIZE: Final = 2
_DELETES: Final = (
    "DELETE FROM device_session_ctx WHERE client_id = $1",
    "DELETE FROM device_publish_msg WHERE client_id = $1",
)


@final
class PostgresQueueReader:
    """Read-only device queues.

    Args:
        pool: closed with the reader.
        shape: what the database has.
    """

    def __init__(self, pool: Pool, shape: queries.Shape) -> None:
        self._pool = pool
        self._has_state = shape.has_state
        self._queries = Queries(shape)

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect and see what is there.

        Raises:
            ConfigError: the URL or the user's rights, or there are no queues.
            StorageError: the server does not answer.
        """
        pool = Pool(url, size=_POOL_SIZE)
        try:
            shape = await schema.look(pool)
            if not shape.has_queues:
                raise ConfigError(
                    "the database holds no device queues",
                    hint="name their schema with ?search_path=NAME in the URL",
                )
        except BaseException:
            await pool.close()
            raise
        return cls(pool, shape)

    async def queues(self, *, after: str = "") -> AsyncGenerator[tuple[QueueStats, bool], None]:
        """All queues as ``DeviceQueue.clients``, and whether there is a session: messages of
        TBMQ may be without."""
        async with aclosing(list_rows(self._pool, self._queries, after=after)) as rows:
            async for row in rows:
                yield queries.stats_of(row), row["is_session"]

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``DeviceQueue.stats``."""
        rows = await self._pool.run(self._queries.stats([key_of(client_id)]))
        return queries.stats_of(rows[0]) if rows else None

    async def read(
        self, client_id: str, *, after_serial: int, limit: int, bytes_max: int, now_us: int
    ) -> QueuePage:
        """As ``DeviceQueue.read``, but what has expired is only left out."""
        statement = self._queries.read([(client_id, after_serial, limit, bytes_max)])
        (page,) = queries.pages_of(await self._pool.run(statement), 1)
        return page.split(now_us)[0]

    async def discard(self, client_id: str) -> bool:
        """Delete a client, whoever owns it; False if unknown.

        Raises:
            Fenced: somebody has just become its owner.
        """
        stats = await self.stats(client_id)
        if stats is None:
            return False
        if not self._has_state:
            key = key_of(client_id)
            await self._pool.run_all([Statement(sql, (key,)) for sql in _DELETES])
            return True
        rows = await self._pool.run(statements.discard([(client_id, stats.epoch)]))
        (result,) = statements.counts_of([client_id], rows)
        if isinstance(result, Fenced):
            raise result
        return result == 1

    async def close(self) -> None:
        """Give the connections back."""
        await self._pool.close()
