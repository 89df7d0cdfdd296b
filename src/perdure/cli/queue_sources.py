"""Where ``perdure queues`` finds queues: a Redis, a PostgreSQL, or a broker's data directory.

All sources look alike and change nothing unless they are asked to discard. In a data directory a
queue is what the session's subscriptions and cursor make of the log (``broker.delivery.pending``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, final

from perdure.broker.delivery.pending import PendingQueue, Store
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.model import SessionRecord, StoredSession
from perdure.storage.device_queue import (
    DeviceQueue,
    EntryState,
    QueuedEntry,
    QueuePage,
    QueueStats,
    is_expired,
)
from perdure.storage.queue_lines import entry_line, session_line
from perdure.storage.remote.reader import StateReader

if TYPE_CHECKING:
    from perdure.storage.postgres.reader import PostgresQueueReader

Line: TypeAlias = dict[str, Any]

PAGE_ENTRIES: Final = 500
"""Entries read at a time."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes read at a time."""


_T = TypeVar("_T")


class SessionStore(Store, Protocol):
    """A broker's durable state, as far as it is looked into."""

    def sessions(self) -> AsyncIterator[SessionRecord]:
        """All sessions, in client-id order."""
        ...

    async def open_session(self, client_id: str) -> StoredSession | None:
        """All that is stored of a session."""
        ...


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
        async with closing(self._queue.clients()) as found:
            async for stats in found:
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
        async with aclosing(self._reader.queues()) as found:
            async for stats, _ in found:
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
        async with aclosing(self._reader.queues()) as found:
            async for stats, is_session in found:
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
class SessionSource:
    """The durable sessions of a broker, beside it or while it is stopped.

    Args:
        database: opened for reading; closed by its owner.
        now_us: what has expired by then and was never sent is left out.
    """

    def __init__(self, database: SessionStore, now_us: int) -> None:
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
        stored = await self._database.open_session(client_id)
        if stored is None:
            return None
        queue = PendingQueue(self._database, stored, now_us=self._now_us)
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
        stored = await self._database.open_session(client_id)
        if stored is not None:
            async for entry in PendingQueue(self._database, stored, now_us=self._now_us).entries():
                yield entry

    async def lines(self) -> AsyncIterator[Line]:
        """See ``QueueSource``."""
        async for record in self._database.sessions():
            stored = await self._database.open_session(record.client_id)
            if stored is None:
                continue
            queue = PendingQueue(self._database, stored, now_us=self._now_us)
            async for entry in queue.entries():
                yield entry_line(record.client_id, entry)
            yield session_line(record.client_id, queue.last_packet_id)

    async def close(self) -> None:
        """The database is its owner's."""


@final
class BrokerSource:
    """A server in which a broker keeps its state: a queue there is what a session makes of it.

    Queues of clients that are no sessions of the broker are those of ``beside``.

    Args:
        state: closed with the source.
        beside: the queues as they are; closed with the source.
        now_us: as of both.
    """

    def __init__(self, state: StateReader, beside: ServerSource, now_us: int) -> None:
        self._state = state
        self._sessions = SessionSource(state, now_us)
        self._beside = beside

    def queues(self) -> AsyncIterator[QueueStats]:
        """See ``QueueSource``."""
        return merged(self._sessions.queues(), self._beside.queues(), lambda stats: stats.client_id)

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``QueueSource``."""
        found = await self._sessions.stats(client_id)
        return await self._beside.stats(client_id) if found is None else found

    async def entries(self, client_id: str) -> AsyncIterator[QueuedEntry]:
        """See ``QueueSource``."""
        is_session = await self._state.open_session(client_id) is not None
        async for entry in (self._sessions if is_session else self._beside).entries(client_id):
            yield entry

    def lines(self) -> AsyncIterator[Line]:
        """See ``QueueSource``."""
        return merged(
            self._sessions.lines(), self._beside.lines(), lambda line: str(line["client_id"])
        )

    async def discard(self, client_id: str) -> bool:
        """See ``ServerSource``; a session is the broker's to end."""
        if await self._state.open_session(client_id) is not None:
            raise CommandFailed(
                f"{client_id!r} is a session of a broker",
                ExitCode.NOT_PERMITTED,
                hint="perdure sessions discard, on the machine of the broker",
            )
        return await self._beside.discard(client_id)

    async def close(self) -> None:
        """See ``QueueSource``."""
        try:
            await self._state.close()
        finally:
            await self._beside.close()


async def merged(
    first: AsyncIterator[_T], second: AsyncIterator[_T], client_id: Callable[[_T], str]
) -> AsyncIterator[_T]:
    """Two sources in the order of their clients; a client that both know is the first one's."""
    async with closing(first), closing(second):
        async for item in _merged(first, second, client_id):
            yield item


async def _merged(
    first: AsyncIterator[_T], second: AsyncIterator[_T], client_id: Callable[[_T], str]
) -> AsyncIterator[_T]:
    ours, theirs = await anext(first, None), await anext(second, None)
    last: str | None = None
    while ours is not None or theirs is not None:
        if theirs is None or (
            ours is not None and client_id(ours).encode() <= client_id(theirs).encode()
        ):
            assert ours is not None
            last = client_id(ours)
            yield ours
            ours = await anext(first, None)
        else:
            if client_id(theirs) != last:
                yield theirs
            theirs = await anext(second, None)


@asynccontextmanager
async def closing(items: AsyncIterator[_T]) -> AsyncIterator[AsyncIterator[_T]]:
    """Close a generator with the block: what it holds is given back although nobody reads on."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
