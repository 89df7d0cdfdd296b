"""A ``storage.contract.Database`` on a server.

Joins the parts: the writer (rows, queues, what memory holds), the pipeline
(delivery), the log, and the half that reads. Writing touches memory alone and never waits; a sync
ends when the server has acknowledged; a read waits until what was written before it is there.

One broker writes: the driver's claim sees to that, and so memory may hold what is small and asked
for often (owners, subscriptions, names of retained topics, counters), loaded once at the start.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import final

import msgspec

from perdure.errors import StorageError, StorageUnavailable
from perdure.storage.batch import Batch, apply, give_offsets
from perdure.storage.capabilities import Capabilities
from perdure.storage.contract import GenerationInfo
from perdure.storage.fencing import stale
from perdure.storage.offsets import Offsets
from perdure.storage.remote import retained, rows
from perdure.storage.remote.driver import META, Driver, Transaction
from perdure.storage.remote.loading import load
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.loops import DriverLoop
from perdure.storage.remote.pipeline import Pipeline, copy_of
from perdure.storage.remote.read_side import ReadSide
from perdure.storage.remote.writer import Writer
from perdure.storage.tail import Tail


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
class RemoteDatabase(ReadSide):
    """A database on a server. Made by ``open`` on an event loop, by ``open_blocking`` without."""

    def __init__(self, driver: Driver, loop: DriverLoop, settings: Settings) -> None:
        tail = Tail(
            messages_max=settings.tail_messages_max, bytes_max=settings.pending_bytes_max, floor=0
        )
        log = RemoteLog(driver, tail)
        super().__init__(
            driver,
            loop,
            log,
            Writer(log, queue_max=driver.queue_max),
            Pipeline(driver, self._close_transaction, outage_max_s=settings.outage_max_s),
            outage_max_s=settings.outage_max_s,
        )
        self._settings = settings
        self._capabilities = Capabilities(
            queues=self, loop_sync=self, keeps_written=False, may_be_taken=True
        )
        # Held while the open transaction is added to or closed; a driver's own loop is another
        # thread's.
        self._lock = threading.Lock()
        self._offsets = Offsets()
        self._swept_key = b""
        self.on_sequenced: Callable[[], None] | None = None

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
        """Open it with a loop and a thread of its own, for callers that block."""
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
            self._offsets.last = await load(self._driver, self._writer, self._log)
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
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def last_offset(self) -> int:
        return self._offsets.last

    @property
    def is_full(self) -> bool:
        return self._pending_bytes() * 2 > self._settings.pending_bytes_max

    def _pending_bytes(self) -> int:
        held = self._pipeline.held
        return self._writer.transaction.size + (held.size if held is not None else 0)

    def submit(self, batch: Batch, now_us: int) -> None:
        self._refuse_if_failed()
        if not batch.is_empty() and self._pending_bytes() > self._settings.pending_bytes_max:
            error = StorageUnavailable(
                f"{self._driver.place} takes less than is written",
                hint="see what it waits for; storage.*.pending_bytes_max is the bound",
            )
            self._loop.soon(lambda: self._pipeline.fail(error))
            raise copy_of(error)
        give_offsets(batch, self._offsets, now_us)
        batch.is_sequenced = True
        if batch.is_empty():
            return
        writer = self._writer
        batch.refused = stale(batch.operations, writer.owners.epoch)
        with self._lock:
            for message in batch.messages:
                writer.append(message)
            apply(batch.held(), writer)
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
            writer.put_high(self._offsets.last)
            writer.transaction = Transaction()
            return transaction

    def begin_sync(self, done: Callable[[BaseException | None], None]) -> None:
        def on_durable(error: StorageError | None) -> None:
            self._loop.soon(lambda: done(None if error is None else copy_of(error)))

        self._pipeline.want(self._write_count, on_durable)

    def sync(self) -> None:
        self._refuse_if_failed()
        self._loop.wait(self._pipeline.settle(self._write_count))

    def _refuse_if_failed(self) -> None:
        if self._closed:
            raise StorageUnavailable(f"{self._driver.place} is closed")
        failure = self._pipeline.failure
        if failure is not None:
            raise copy_of(failure)

    async def recover(self) -> bool:
        if self._closed:
            return False
        return await self._loop.call(self._pipeline.recover())

    def rotate(self, now_us: int) -> GenerationInfo:
        self._refuse_if_failed()
        with self._lock:
            self._log.rotate(
                self._writer.transaction, last_offset=self._offsets.last, now_us=now_us
            )
            self._handed_over()
        return self._log.info()[-1]

    def drop_generation(self, generation: int) -> None:
        self._refuse_if_failed()
        with self._lock:
            self._log.drop(self._writer.transaction, generation)
            self._handed_over()

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        self._refuse_if_failed()
        topics, self._swept_key = await self._call(
            lambda: retained.expired(
                self._driver, after_key=self._swept_key, now_us=now_us, limit=limit
            )
        )
        batch = Batch()
        for topic in topics:
            batch.delete_retained(topic)
        self.submit(batch, 0)
        return len(topics)
