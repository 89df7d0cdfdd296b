"""A ``storage.contract.Database`` on a server.

Joins the parts: batches (calls), the writer (rows, queues, what memory holds), the pipeline
(delivery) and the log. Writing touches memory alone and never waits; a sync ends when the server
has acknowledged; a read waits until what was written before it is there.

One broker writes: the driver's claim sees to that, and so memory may hold what is small and asked
for often (owners, subscriptions, names of retained topics, counters), loaded once at the start.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar, final

import msgspec

from perdure.errors import (
    Fenced,
    FormatTooNew,
    StorageError,
    StorageTimeout,
    StorageUnavailable,
    UsageError,
)
from perdure.model import (
    GroupRecord,
    InboxEntry,
    Message,
    SessionRecord,
    StoredSession,
)
from perdure.storage.codec import (
    decode_group,
    decode_retained,
    decode_session,
    decode_subscription,
)
from perdure.storage.contract import (
    Batch,
    GenerationInfo,
    ReadResult,
    RetainedPage,
    StreamInfo,
)
from perdure.storage.remote import reader, retained, rows
from perdure.storage.remote.batch import RemoteBatch
from perdure.storage.remote.driver import (
    CLIENTS,
    GROUPS,
    INBOX,
    MEMBERS,
    META,
    RETAINED,
    RETURNED,
    ROWS,
    Driver,
    Row,
    Transaction,
)
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.loops import DriverLoop
from perdure.storage.remote.pipeline import BACKOFF_MAX_S, BACKOFF_MIN_S, Pipeline, again
from perdure.storage.remote.writer import Writer
from perdure.storage.retained_walk import retained_key
from perdure.storage.tail import Tail

T = TypeVar("T")

PAGE: Final = 1000
"""Rows read at once where all are wanted."""


class Settings(msgspec.Struct, frozen=True):
    """How patient the store is with its server.

    Attributes:
        outage_max_s: how long what was not acknowledged is sent again before the store fails.
        pending_bytes_max: bytes that may wait for the server; peers pause at half of it.
        tail_messages_max: newest messages that are kept in memory; fewer than may wait to be
            dispatched are for tests.
    """

    outage_max_s: float = 30.0
    pending_bytes_max: int = 64 * 1024 * 1024
    tail_messages_max: int = 200_000


@final
class RemoteDatabase:
    """A database on a server. Made by ``open`` on an event loop, by ``open_blocking`` without."""

    def __init__(self, driver: Driver, loop: DriverLoop, settings: Settings) -> None:
        self._driver = driver
        self._loop = loop
        self._settings = settings
        # Held while the open transaction is added to or closed; a driver's own loop is another
        # thread's.
        self._lock = threading.Lock()
        self._last_offset = 0
        self._write_count = 0
        self._swept_key = b""
        self._closed = False
        tail = Tail(
            messages_max=settings.tail_messages_max, bytes_max=settings.pending_bytes_max, floor=0
        )
        self._log = RemoteLog(driver, tail)
        self._writer = Writer(self._log, queue_max=driver.queue_max)
        self._pipeline = Pipeline(
            driver, self._close_transaction, outage_max_s=settings.outage_max_s
        )

    # -- opening and closing ---------------------------------------------------------------

    @classmethod
    async def open(
        cls, driver: Driver, *, now_us: int, settings: Settings | None = None
    ) -> RemoteDatabase:
        """Open the state that a server has, or begin it, on the running loop.

        Raises:
            StorageError: the server is not there, or cannot be used.
        """
        loop = DriverLoop(asyncio.get_running_loop())
        database = cls(driver, loop, settings or Settings())
        await database._start(now_us)
        return database

    @classmethod
    def open_blocking(
        cls, make_driver: Callable[[], Driver], *, now_us: int, settings: Settings | None = None
    ) -> RemoteDatabase:
        """The same with a loop and a thread of its own, for callers that block."""
        loop = DriverLoop()

        async def start() -> RemoteDatabase:
            database = cls(make_driver(), loop, settings or Settings())
            await database._start(now_us)
            return database

        try:
            return loop.wait(start())
        except BaseException:
            loop.close()
            raise

    async def _start(self, now_us: int) -> None:
        try:
            claim = await self._driver.claim()
            await self._load()
            self._pipeline.start(claim.number)
            if self._log.is_new:
                self._begin(now_us)
                await self._pipeline.settle(self._write_count)
        except BaseException:
            await self._driver.close()
            raise

    def _begin(self, now_us: int) -> None:
        with self._lock:
            writer = self._writer
            writer.transaction.put(META, rows.NOBODY, rows.FORMAT_KEY, rows.FORMAT)
            self._log.begin(writer.transaction, since_offset=1, now_us=now_us)
            self._handed_over()

    async def _load(self) -> None:
        meta = await self._all(META, rows.NOBODY)
        stored = dict(meta)
        version = stored.get(rows.FORMAT_KEY, rows.FORMAT)
        if version > rows.FORMAT:
            raise FormatTooNew(f"{self._driver.place} was written by a later release")
        high = stored.get(rows.HIGH_KEY)
        self._last_offset = max(self._last_offset, rows.parse_number(high) if high else 0)
        writer = self._writer
        writer.reset(self._last_offset)
        await self._log.load(meta, last_offset=self._last_offset)
        writer.retained = {key async for key, _ in self._pages(RETAINED, names=True)}
        async for client_id, found in self._sessions_with_rows():
            for key, value in found:
                if key == rows.RECORD_KEY:
                    writer.owners.put(decode_session(value))
                elif key[:1] == b"u":
                    writer.interests.put(client_id, decode_subscription(value))

    async def _sessions_with_rows(self) -> AsyncIterator[tuple[str, list[Row]]]:
        start = b""
        while True:
            page = await self._driver.scan(CLIENTS, rows.NOBODY, start=start, end=b"", limit=PAGE)
            found = await self._driver.rows_of(ROWS, [key for key, _ in page])
            sizes = await self._driver.queue_sizes([key.decode() for key, _ in page])
            for (key, _), size in zip(page, sizes, strict=True):
                if size:
                    self._writer.load_queue(key.decode(), size)
            for (key, _), values in zip(page, found, strict=True):
                yield key.decode(), values
            if len(page) < PAGE:
                return
            start = page[-1][0] + b"\0"

    async def stop(self) -> None:
        """Deliver what is written, then give the server back; on the driver's loop."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._pipeline.failure is None:
                await self._pipeline.settle(self._write_count)
        finally:
            await self._pipeline.stop()
            await self._driver.close()

    def close(self) -> None:
        if self._closed:
            return
        try:
            self._loop.wait(self.stop())
        finally:
            self._loop.close()

    # -- writing ---------------------------------------------------------------------------

    @property
    def server(self) -> RemoteDatabase:
        return self

    @property
    def last_offset(self) -> int:
        return self._last_offset

    @property
    def has_failed(self) -> bool:
        return self._pipeline.failure is not None

    @property
    def retained_count(self) -> int:
        return len(self._writer.retained)

    @property
    def is_full(self) -> bool:
        return self._pending_bytes() * 2 > self._settings.pending_bytes_max

    def _pending_bytes(self) -> int:
        held = self._pipeline.held
        return self._writer.transaction.size + (held.size if held is not None else 0)

    def allocate_offset(self, now_us: int) -> int:
        self._last_offset = max(self._last_offset + 1, now_us)
        return self._last_offset

    def batch(self) -> RemoteBatch:
        return RemoteBatch(self._owner_epoch, self.allocate_offset)

    def _owner_epoch(self, client_id: str) -> int | None:
        return self._writer.owners.epoch(client_id)

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RemoteBatch)
        self._refuse_if_failed()
        if batch.is_empty():
            return
        stale = batch.stale_owner()
        if stale is not None:
            raise Fenced(f"session {stale!r} has a later owner or is gone")
        if self._pending_bytes() > self._settings.pending_bytes_max:
            error = StorageUnavailable(
                f"{self._driver.place} takes less than is written",
                hint="see what it waits for; storage.*.pending_bytes_max is the bound",
            )
            self._loop.soon(lambda: self._pipeline.fail(error))
            raise again(error)
        writer = self._writer
        with self._lock:
            for call, arguments in batch.calls:
                call(writer, *arguments)
            self._log.batch_written()
            self._handed_over()

    def _handed_over(self) -> None:
        self._write_count += 1
        self._writer.transaction.last_write = write = self._write_count
        if self._loop.is_here:
            self._pipeline.written(write)
        else:
            self._loop.soon(lambda: self._pipeline.written(write))

    def _close_transaction(self) -> Transaction | None:
        """The open transaction, complete; called by the pipeline, on its loop."""
        with self._lock:
            writer = self._writer
            transaction = writer.transaction
            if not transaction.last_write:
                return None
            self._log.close(transaction)
            writer.put_high(self._last_offset)
            writer.transaction = Transaction()
            return transaction

    def begin_sync(self, done: Callable[[BaseException | None], None]) -> None:
        def told(error: StorageError | None) -> None:
            self._loop.soon(lambda: done(None if error is None else again(error)))

        self._pipeline.want(self._write_count, told)

    def sync(self) -> None:
        self._refuse_if_failed()
        self._loop.wait(self._pipeline.settle(self._write_count))

    def _refuse_if_failed(self) -> None:
        if self._closed:
            raise StorageUnavailable(f"{self._driver.place} is closed")
        failure = self._pipeline.failure
        if failure is not None:
            raise again(failure)

    async def recover(self) -> bool:
        if self._closed:
            return False
        return await self._loop.call(self._pipeline.recover())

    # -- reading ---------------------------------------------------------------------------

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
        deadline = loop.time() + self._settings.outage_max_s
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

    async def _pages(self, table: str, *, names: bool = False) -> AsyncIterator[Row]:
        """All rows of a table that belongs to nobody, in pages."""
        start = b""
        while True:
            page = await self._driver.scan(
                table, rows.NOBODY, start=start, end=b"", limit=PAGE, names_only=names
            )
            for row in page:
                yield row
            if len(page) < PAGE:
                return
            start = page[-1][0] + b"\0"

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
    ) -> int:
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

    def generations(self) -> list[GenerationInfo]:
        return self._log.info()

    def streams(self, generation: int) -> list[StreamInfo]:
        if not self._log.has(generation):
            raise UsageError(f"generation {generation} is unknown")
        return []

    def rotate(self, now_us: int) -> GenerationInfo:
        self._refuse_if_failed()
        with self._lock:
            self._log.rotate(self._writer.transaction, last_offset=self._last_offset, now_us=now_us)
            self._handed_over()
        return self._log.info()[-1]

    def drop_generation(self, generation: int) -> None:
        self._refuse_if_failed()
        with self._lock:
            self._log.drop(self._writer.transaction, generation)
            self._handed_over()

    # -- sessions --------------------------------------------------------------------------

    async def open_session(self, client_id: str) -> StoredSession | None:
        if self._writer.owners.epoch(client_id) is None:
            return None
        return await self._call(lambda: reader.read_session(self._driver, client_id))

    async def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        start = after.encode() + b"\0" if after else b""
        while True:
            page, records = await self._call(partial(reader.session_page, self._driver, start))
            for record in records:
                yield record
            if len(page) < PAGE:
                return
            start = page[-1] + b"\0"

    async def session_count(self) -> int:
        return len(self._writer.owners)

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        due = [client_id.encode() for client_id in self._writer.owners.due(now_us, limit)]
        return await self._call(lambda: reader.records_of(self._driver, due)) if due else []

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
                self._driver,
                topic_filter,
                after_topic=after_topic,
                limit=limit,
                scan_max=scan_max,
            )
        )

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        self._refuse_if_failed()
        topics, self._swept_key = await self._call(
            lambda: retained.expired(
                self._driver, after_key=self._swept_key, now_us=now_us, limit=limit
            )
        )
        batch = self.batch()
        for topic in topics:
            batch.delete_retained(topic)
        self.write(batch)
        return len(topics)
