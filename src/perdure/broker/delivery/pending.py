"""The rows of pending messages in any store, and the queue that an operator is shown.

A database that keeps a queue for each durable session is asked for the queue in place of the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol, final

from perdure.model import InboxEntry, StoredSession
from perdure.session.pending import PendingMessage, without_payload
from perdure.session.pending_pages import Rows, StoredQueue
from perdure.session.seqno import packet_id_of
from perdure.storage.capabilities import Capabilities, SessionQueues
from perdure.storage.contract import ReadResult
from perdure.storage.device_queue import EntryState, QueuedEntry


class Store(Rows, Protocol):
    """What of a ``storage.contract.Database`` is needed here."""

    @property
    def capabilities(self) -> Capabilities:
        """Whether it has a queue for each session."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset that was given out."""
        ...


@final
class _QueueRows:
    """A session's queue in place of the log."""

    def __init__(self, database: Store, queues: SessionQueues, client_id: str) -> None:
        self._database = database
        self._queues = queues
        self._client_id = client_id

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """What is queued; ``filters`` are what it was queued for."""
        return await self._queues.read_queue(
            self._client_id,
            after_offset=after_offset,
            until_offset=until_offset,
            limit=limit,
            bytes_max=bytes_max,
        )

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """See ``Rows``."""
        return await self._database.read_inbox(
            client_id, after_offset=after_offset, until_offset=until_offset, limit=limit
        )


def rows_of(database: Store, client_id: str, *, durable: bool) -> Rows:
    """Where the rows of a session's pending messages are."""
    queues = database.capabilities.queues
    if queues is None or not durable:
        return database
    return _QueueRows(database, queues, client_id)


@final
class PendingQueue:
    """The queue that a stored session amounts to; read only.

    Args:
        database: where it is.
        stored: the session.
        now_us: what has expired by then and was never sent is left out, as when it is sent.
    """

    def __init__(self, database: Store, stored: StoredSession, *, now_us: int) -> None:
        rows = rows_of(database, stored.record.client_id, durable=True)
        self._queue = StoredQueue(rows, stored, until=database.last_offset)
        self._now_us = now_us

    @property
    def last_serial(self) -> int:
        """Highest serial number that is taken, once all entries were read."""
        return self._queue.last_serial

    @property
    def last_packet_id(self) -> int:
        """The packet identifier of ``last_serial``; 0 = none was ever given."""
        return packet_id_of(self.last_serial) if self.last_serial else 0

    async def entries(self) -> AsyncIterator[QueuedEntry]:
        """What the client is sent when it comes back, oldest first."""
        async with aclosing(self._queue.messages()) as messages:
            async for pending in messages:
                entry = self._entry_of(pending)
                if entry is not None:
                    yield entry

    def _entry_of(self, pending: PendingMessage) -> QueuedEntry | None:
        progress = self._queue.progress
        message, qos = pending.message, pending.qos
        if message is None or progress.is_settled(pending):
            return None
        state = EntryState.PUBLISH
        forget_at_us = 0 if pending.entry is None else pending.entry.forget_at_us
        if progress.is_released(pending):
            state = EntryState.PUBREL
            message, qos, forget_at_us = without_payload(message), 2, 0
        elif progress.is_past(pending, self._now_us):
            return None
        return QueuedEntry(
            serial=pending.serial,
            packet_id=pending.packet_id,
            state=state,
            message=message,
            qos=qos,
            retain=pending.retain,
            identifiers=pending.identifiers,
            forget_at_us=forget_at_us,
        )
