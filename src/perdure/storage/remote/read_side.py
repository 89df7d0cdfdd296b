"""The half of a database on a server that reads.

What is small and asked for often is answered from memory. Everything else is read on the driver's
loop, behind what was written before; while the server is away a read waits, as writes do.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from perdure.errors import StorageTimeout, StorageUnavailable, UsageError
from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.codec import decode_group, decode_retained
from perdure.storage.contract import Counted, GenerationInfo, ReadResult, RetainedPage, StreamInfo
from perdure.storage.remote import reader, retained, rows
from perdure.storage.remote.driver import GROUPS, INBOX, MEMBERS, RETAINED, RETURNED, Driver, Row
from perdure.storage.remote.durable_subscriptions import Clients
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.loops import DriverLoop
from perdure.storage.remote.pipeline import BACKOFF_MAX_S, BACKOFF_MIN_S, Pipeline
from perdure.storage.remote.writer import Writer
from perdure.storage.retained_walk import retained_key
from perdure.storage.subscribers import SubscriberPage, parse_subscriber, subscriber_key

T = TypeVar("T")


class ReadSide:
    """Reads for ``RemoteDatabase``, which keeps ``_write_count`` and ``_closed``.

    Args:
        driver, loop: the server, and where its calls are made.
        log, writer: what memory holds.
        pipeline: delivers what was written.
        outage_max_s: how long a read waits for a server that is away.
    """

    def __init__(
        self,
        driver: Driver,
        loop: DriverLoop,
        log: RemoteLog,
        writer: Writer,
        pipeline: Pipeline,
        *,
        outage_max_s: float,
    ) -> None:
        self._driver = driver
        self._loop = loop
        self._log = log
        self._writer = writer
        self._pipeline = pipeline
        self._outage_max_s = outage_max_s
        self._write_count = 0
        self._closed = False

    @property
    def has_failed(self) -> bool:
        return self._pipeline.failure is not None

    @property
    def retained_count(self) -> int:
        return len(self._writer.retained)

    @property
    def retained_bytes(self) -> int:
        return self._writer.retained_bytes

    def retained_size_of(self, topic: str) -> int:
        return self._writer.retained.get(retained_key(topic), 0)

    async def _settle_here(self) -> None:
        """Wait, on the driver's loop, until the server has what was written so far."""
        await self._pipeline.settle(self._write_count)

    async def _call(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a read on the driver's loop, behind what was written.

        While the server is away it waits, as writes do: whoever reads is not told of an outage
        that is over soon.
        """
        return await self._loop.call(self._patiently(read))

    async def _patiently(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._outage_max_s
        delay = BACKOFF_MIN_S
        while True:
            try:
                await self._settle_here()
                return await read()
            except (StorageUnavailable, StorageTimeout):
                if self._closed or self.has_failed or loop.time() + delay > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(delay * 2, BACKOFF_MAX_S)

    async def _all(self, table: str, owner: bytes) -> list[Row]:
        """All rows of an owner, in a table whose rows are few."""
        return await self._driver.scan(table, owner, start=b"", end=b"", limit=1 << 31)

    # -- the log and the queues ------------------------------------------------------------

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        if not filters or until_offset <= after_offset:
            return ReadResult([], until_offset)
        fresh = self._log.read_tail(filters, after_offset, until_offset, limit, bytes_max)
        if fresh is not None:
            return fresh
        return await self._call(
            lambda: self._log.read(filters, after_offset, until_offset, limit, bytes_max)
        )

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        return await self._call(lambda: self._log.count(filters, after_offset, until_offset, limit))

    async def read_queue(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int, bytes_max: int
    ) -> ReadResult:
        return await self._call(
            lambda: reader.read_queue_page(
                self._driver,
                client_id,
                after=after_offset,
                until=until_offset,
                limit=limit,
                bytes_max=bytes_max,
            )
        )

    def messages_after(self, offset: int) -> int:
        return self._log.messages_after(offset)

    def disk_bytes(self) -> int:
        return sum(info.bytes for info in self._log.info())

    @property
    def since_offset(self) -> int:
        return self._log.since_offset

    def generations(self) -> list[GenerationInfo]:
        return self._log.info()

    def streams(self, generation: int) -> list[StreamInfo]:
        if not self._log.has(generation):
            raise UsageError(f"generation {generation} is unknown")
        return []

    # -- sessions --------------------------------------------------------------------------

    async def open_session(self, client_id: str) -> StoredSession | None:
        if self._writer.owners.epoch(client_id) is None:
            return None
        return await self._call(lambda: reader.read_session(self._driver, client_id))

    async def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        start = reader.above(after)
        while True:
            page, records = await self._call(partial(reader.session_page, self._driver, start))
            for record in records:
                yield record
            if len(page) < reader.PAGE:
                return
            start = page[-1] + b"\0"

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        return await self._call(lambda: reader.session_ids(self._driver, after, limit))

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        names = [each.encode() for each in client_ids]
        return await self._records(names)

    async def _records(self, names: Sequence[bytes]) -> list[SessionRecord]:
        """Of nobody at once: what memory knows waits for no server."""
        if not names:
            return []
        return await self._call(lambda: reader.records_of(self._driver, names))

    async def session_count(self) -> int:
        return len(self._writer.owners)

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        matching = self._writer.durable_subscriptions.subscribers(topic)
        return await _first(matching, "", start, limit, steps_max)

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        every = self._writer.durable_subscriptions.all()
        return await _first(every, text, start, limit, steps_max)

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        due = [client_id.encode() for client_id in self._writer.owners.due(now_us, limit)]
        return await self._records(due)

    async def next_deadline_us(self) -> int:
        return self._writer.owners.next_deadline_us()

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        return await self._call(
            lambda: reader.read_entries(
                self._driver,
                INBOX,
                client_id,
                after=after_offset,
                end=until_offset + 1,
                limit=limit,
            )
        )

    # -- groups ----------------------------------------------------------------------------

    async def groups(self) -> list[GroupRecord]:
        found = await self._call(lambda: self._all(GROUPS, rows.NOBODY))
        return [decode_group(value) for _, value in found]

    async def group_members(self, group_key: str) -> list[str]:
        found = await self._call(lambda: self._all(MEMBERS, group_key.encode()))
        return [key.decode() for key, _ in found]

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        return await self._call(
            lambda: reader.read_entries(
                self._driver, RETURNED, group_key, after=after_offset, end=0, limit=limit
            )
        )

    # -- retained --------------------------------------------------------------------------

    async def get_retained(self, topic: str) -> Message | None:
        key = retained_key(topic)
        if key not in self._writer.retained:
            return None
        (value,) = await self._call(lambda: self._driver.get([(RETAINED, rows.NOBODY, key)]))
        return None if value is None else decode_retained(topic, value)

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        return await self._call(
            lambda: retained.read_page(
                self._driver, topic_filter, after_topic=after_topic, limit=limit, scan_max=scan_max
            )
        )


async def _first(
    audiences: list[Clients], text: str, start: bytes, limit: int, steps_max: int
) -> SubscriberPage:
    """The first subscriptions, by their keys, that are not before one and whose names have a text
    in them; of so many clients at once."""
    keys: list[bytes] = []
    looked = 0
    for clients in audiences:
        for client_id in list(clients):
            for sub in clients.get(client_id, {}).values():
                if text in sub.name:
                    key = subscriber_key(sub.filter, client_id, sub.name)
                    if key >= start:
                        keys.append(key)
            looked += 1
            if not looked % steps_max:
                keys = heapq.nsmallest(limit + 1, keys)
                await asyncio.sleep(0)
    keys = heapq.nsmallest(limit + 1, keys)
    found = [parse_subscriber(key)[1] for key in keys[:limit]]
    return SubscriberPage(found, keys[limit] if len(keys) > limit else None)
