"""Where ``perdure queues`` finds queues: a Redis, a PostgreSQL, or a broker's data directory.

All sources look alike and change nothing unless they are asked to discard. In a data directory a
queue is what the session's subscriptions and cursor make of the log (``broker.owed``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    final,
)

from perdure.cli.data import each, open_database
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.errors import ConfigError
from perdure.storage.device_queue import (
    DeviceQueue,
    EntryState,
    QueuedEntry,
    QueuePage,
    QueueStats,
)
from perdure.storage.memory.device_queue import is_expired
from perdure.storage.queue_lines import entry_line, session_line

if TYPE_CHECKING:
    from perdure.storage.contract import Database
    from perdure.storage.postgres.reader import PostgresQueueReader

Layout: TypeAlias = Literal["compact", "tbmq"]
Line: TypeAlias = dict[str, Any]

PAGE_ENTRIES: Final = 500
"""Entries read at a time."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes read at a time."""

_POSTGRES: Final = ("postgresql", "postgres")
_REDIS: Final = ("redis", "rediss", "redis+cluster", "rediss+cluster")


class QueueSource(Protocol):
    """A store of queues to look into."""

    def queues(self) -> AsyncIterator[QueueStats]:
        """All queues, in client-id order where the store has one."""
        ...

    async def stats(self, client_id: str) -> QueueStats | None:
        """One queue; None = unknown."""
        ...

    def entries(self, client_id: str) -> AsyncIterator[QueuedEntry]:
        """What is owed, oldest first; one page in memory at a time."""
        ...

    def lines(self) -> AsyncIterator[Line]:
        """All queues in the form of ``storage.queue_lines``."""
        ...

    async def close(self) -> None:
        """Give back what is open."""
        ...


class ServerSource(QueueSource, Protocol):
    """One in a server, where a queue is a thing of its own."""

    async def discard(self, client_id: str) -> bool:
        """Forget a client; False = unknown."""
        ...


@final
class DeviceQueueSource:
    """Queues in a server, through their ``DeviceQueue``.

    Args:
        queue: closed with the source.
        now_us: what has expired by then is left out, but not deleted.
    """

    def __init__(self, queue: DeviceQueue, now_us: int) -> None:
        self._queue = queue
        self._now_us = now_us

    def queues(self) -> AsyncIterator[QueueStats]:
        """See ``QueueSource``."""
        return self._queue.clients()

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``QueueSource``."""
        return await self._queue.stats(client_id)

    async def entries(self, client_id: str) -> AsyncIterator[QueuedEntry]:
        """See ``QueueSource``."""
        after: int | None = -1
        while after is not None:
            # At the beginning of time nothing has expired: so nothing is deleted.
            page = await self._queue.read(
                client_id, after_serial=after, limit=PAGE_ENTRIES, bytes_max=PAGE_BYTES, now_us=0
            )
            for entry in page.entries:
                if not is_expired(entry, self._now_us):
                    yield entry
            after = page.next_after

    async def lines(self) -> AsyncIterator[Line]:
        """See ``QueueSource``."""
        async for stats in self._queue.clients():
            async for entry in self.entries(stats.client_id):
                yield entry_line(stats.client_id, entry)
            # TBMQ's shared queues may have messages and no number.
            if stats.last_packet_id or not stats.publish_count + stats.pubrel_count:
                yield session_line(stats.client_id, stats.last_packet_id)

    async def discard(self, client_id: str) -> bool:
        """See ``ServerSource``."""
        stats = await self._queue.stats(client_id)
        return stats is not None and await self._queue.discard(client_id, epoch=stats.epoch)

    async def close(self) -> None:
        """See ``QueueSource``."""
        await self._queue.close()


@final
class PostgresSource:
    """Queues on PostgreSQL, of ours or of TBMQ 1.x as they are.

    Args:
        reader: closed with the source.
        now_us: what has expired by then is left out.
    """

    def __init__(self, reader: PostgresQueueReader, now_us: int) -> None:
        self._reader = reader
        self._now_us = now_us

    async def queues(self) -> AsyncIterator[QueueStats]:
        """See ``QueueSource``."""
        async for stats, _ in self._reader.queues():
            yield stats

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``QueueSource``."""
        return await self._reader.stats(client_id)

    async def entries(self, client_id: str) -> AsyncIterator[QueuedEntry]:
        """See ``QueueSource``."""
        after: int | None = -1
        while after is not None:
            page: QueuePage = await self._reader.read(
                client_id,
                after_serial=after,
                limit=PAGE_ENTRIES,
                bytes_max=PAGE_BYTES,
                now_us=self._now_us,
            )
            for entry in page.entries:
                yield entry
            after = page.next_after

    async def lines(self) -> AsyncIterator[Line]:
        """See ``QueueSource``."""
        async for stats, is_session in self._reader.queues():
            async for entry in self.entries(stats.client_id):
                yield entry_line(stats.client_id, entry)
            if is_session:
                yield session_line(stats.client_id, stats.last_packet_id)

    async def discard(self, client_id: str) -> bool:
        """See ``ServerSource``."""
        return await self._reader.discard(client_id)

    async def close(self) -> None:
        """See ``QueueSource``."""
        await self._reader.close()


@final
class DirectorySource:
    """The durable sessions of a data directory, beside a running broker or without one.

    Args:
        database: opened for reading; closed by its owner.
        now_us: what has expired by then and was never sent is left out.
    """

    def __init__(self, database: Database, now_us: int) -> None:
        self._database = database
        self._now_us = now_us

    async def queues(self) -> AsyncIterator[QueueStats]:
        """See ``QueueSource``."""
        async for record in self._database.sessions():
            stats = await self.stats(record.client_id)
            if stats is not None:
                yield stats

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``QueueSource``."""
        # The broker's floor takes a while to load; other sources do without.
        from perdure.broker.owed import OwedQueue

        stored = await self._database.open_session(client_id)
        if stored is None:
            return None
        queue = OwedQueue(self._database, stored, now_us=self._now_us)
        counts = {EntryState.PUBLISH: 0, EntryState.PUBREL: 0}
        payload_bytes = 0
        async for entry in queue.entries():
            counts[entry.state] += 1
            payload_bytes += len(entry.message.payload)
        return QueueStats(
            client_id=client_id,
            publish_count=counts[EntryState.PUBLISH],
            pubrel_count=counts[EntryState.PUBREL],
            payload_bytes=payload_bytes,
            last_packet_id=queue.last_packet_id,
            last_serial=queue.last_serial,
            last_position=self._database.last_offset,
            epoch=stored.record.epoch,
        )

    async def entries(self, client_id: str) -> AsyncIterator[QueuedEntry]:
        """See ``QueueSource``."""
        from perdure.broker.owed import OwedQueue

        stored = await self._database.open_session(client_id)
        if stored is not None:
            async for entry in OwedQueue(self._database, stored, now_us=self._now_us).entries():
                yield entry

    async def lines(self) -> AsyncIterator[Line]:
        """See ``QueueSource``."""
        from perdure.broker.owed import OwedQueue

        async for record in self._database.sessions():
            stored = await self._database.open_session(record.client_id)
            if stored is None:
                continue
            queue = OwedQueue(self._database, stored, now_us=self._now_us)
            async for entry in queue.entries():
                yield entry_line(record.client_id, entry)
            yield session_line(record.client_id, queue.last_packet_id)

    async def close(self) -> None:
        """The database is its owner's."""


_S = TypeVar("_S", bound=QueueSource)
_T = TypeVar("_T")


@final
class OpenSource(Generic[_S]):
    """A source and the event loop that its coroutines run in.

    Attributes:
        source: opened.
    """

    def __init__(self, source: _S, runner: asyncio.Runner) -> None:
        self.source = source
        self._runner = runner

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a coroutine."""
        return self._runner.run(coroutine)

    def each(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """The items of an asynchronous iterator, page by page."""
        return each(self._runner, items)


@contextlib.contextmanager
def open_server(
    url: str, *, layout: Layout, prefix: str | None, now_us: int
) -> Iterator[OpenSource[ServerSource]]:
    """Open the queues in a server.

    Args:
        url: ``redis://`` and its kin, or ``postgresql://``.
        layout, prefix: of the keys in Redis; None = the layout's own.
        now_us: wall time.

    Raises:
        PerdureError: it cannot be opened.
    """
    with asyncio.Runner() as runner:
        source = runner.run(_connect(url, layout=layout, prefix=prefix, now_us=now_us))
        try:
            yield OpenSource(source, runner)
        finally:
            runner.run(source.close())


async def _connect(url: str, *, layout: Layout, prefix: str | None, now_us: int) -> ServerSource:
    scheme = url.partition("://")[0]
    if scheme in _POSTGRES:
        with _extra("postgres"):
            from perdure.storage.postgres.reader import PostgresQueueReader
        return PostgresSource(await PostgresQueueReader.open(url), now_us)
    if scheme in _REDIS:
        with _extra("redis"):
            from perdure.storage.redis import open_device_queue
        return DeviceQueueSource(await open_device_queue(url, layout=layout, prefix=prefix), now_us)
    raise ConfigError(
        f"no store of queues is called {scheme}://",
        hint=f"{', '.join((*_REDIS, *_POSTGRES))}, or a data directory with --data",
    )


@contextlib.contextmanager
def _extra(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise CommandFailed(
            f"{error.name} is not installed",
            ExitCode.CONFIG,
            hint=f"pip install 'perdure[{name}]'",
        ) from error


@contextlib.contextmanager
def open_directory(path: Path, *, now_us: int) -> Iterator[OpenSource[QueueSource]]:
    """Open the sessions of a data directory for reading.

    Raises:
        CommandFailed: there is no database.
        StorageError: it cannot be opened.
    """
    with open_database(path) as opened:
        yield OpenSource(DirectorySource(opened.database, now_us), opened.runner)
