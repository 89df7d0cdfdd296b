"""A data directory as the source of a migration: what its sessions are owed, as the broker has it.

It stands here because the pipeline does not know the broker. Opened for reading only, so that
several tasks may read at a time; what is in flight belongs to the broker, which is stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, final

from perdure.broker.delivery.pending import PendingQueue
from perdure.model import StoredSession
from perdure.pipeline.jobs.migrate.contract import PAGE_BYTES, PAGE_ENTRIES, Range, Settings
from perdure.pipeline.jobs.migrate.queues import client_pages
from perdure.pipeline.tbmq.pending import PendingPage
from perdure.storage.contract import Database
from perdure.storage.device_queue import QueuedEntry
from perdure.storage.rocksdb import RocksDatabase

ENTRIES_EACH: Final = 10
"""What a session is taken to be owed when ranges are planned: to count costs as much as to read."""


def open_directory_source(path: str) -> DatabaseSource:
    """The sessions of a data directory."""
    return DatabaseSource(RocksDatabase.open(Path(path), read_only=True))


@final
class DatabaseSource:
    """Sessions with what each is owed. Groups and retained messages stay.

    Args:
        database: closed with the source.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def plan(self, entries_max: int) -> AsyncIterator[Range]:
        """See ``Source.plan``."""
        clients_max = max(1, entries_max // ENTRIES_EACH)
        clients: list[str] = []
        number = 0
        async for record in self._database.sessions():
            clients.append(record.client_id)
            if len(clients) == clients_max:
                yield Range(number, len(clients) * ENTRIES_EACH, clients=tuple(clients))
                number, clients = number + 1, []
        if clients:
            yield Range(number, len(clients) * ENTRIES_EACH, clients=tuple(clients))

    async def read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        """See ``Source.read``."""
        for client_id in part.clients:
            stored = await self._database.open_session(client_id)
            if stored is None:
                continue
            async for page in self._read(stored, settings):
                yield page

    async def _read(self, stored: StoredSession, settings: Settings) -> AsyncIterator[PendingPage]:
        # An entry that is past its time takes its serial number all the same, so where numbering
        # goes on is known at the end.
        queue = PendingQueue(self._database, stored, now_us=settings.now_us)
        async for _ in queue.entries():
            pass
        client_id, last_packet_id = stored.record.client_id, queue.last_packet_id
        async for page in client_pages(client_id, last_packet_id, lambda: _parts(queue), settings):
            yield page

    async def close(self) -> None:
        """See ``Source.close``."""
        self._database.close()


async def _parts(queue: PendingQueue) -> AsyncIterator[list[QueuedEntry]]:
    part: list[QueuedEntry] = []
    size = 0
    async for entry in queue.entries():
        if part and (len(part) >= PAGE_ENTRIES or size >= PAGE_BYTES):
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry.message.payload)
    if part:
        yield part
