"""Device queues of ours as source and target, whatever server and layout they are on.

A queue knows by position what it has taken, so the entries of a run that was killed change
nothing when they come again. The last packet identifier of a queue follows its entries; where it
stands beyond them, an entry with that identifier is appended and acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, final

import msgspec

from perdure.errors import ConfigError, UsageError
from perdure.model import Message
from perdure.pipeline.jobs.migrate.contract import PAGE_BYTES, PAGE_ENTRIES, Range, Settings
from perdure.pipeline.tbmq.identifiers import resolve
from perdure.pipeline.tbmq.pending import Losses, PendingEntry, PendingPage, QueueSum, Summing
from perdure.storage.device_queue import (
    QUEUE_LIMIT_MAX,
    DeviceQueue,
    EntryState,
    NewEntry,
    QueuedEntry,
    is_expired,
)

BATCH_ENTRIES: Final = 2_000
BATCH_BYTES: Final = 4 * 1024 * 1024
EPOCH: Final = 1
_NOTHING_EXPIRES: Final = 0
"""The time of a read that deletes nothing."""


@final
class QueueTarget:
    """A store of device queues.

    Args:
        queue: the store; closed with the target.
        now_us: wall time of the migration.
    """

    def __init__(self, queue: DeviceQueue, *, now_us: int) -> None:
        self._queue = queue
        self._now_us = now_us
        self._batch: list[NewEntry] = []
        self._batch_bytes = 0
        self._ends: list[tuple[str, int, int]] = []
        self._last_in_page = 0

    def takes(self, page: PendingPage) -> PendingPage:
        """See ``Target.takes``: everything."""
        return page

    async def put(self, page: PendingPage) -> None:
        """See ``Target.put``."""
        for entry in page.entries:
            self._batch.append(_new(page.client_id, entry))
            self._batch_bytes += len(entry.payload)
            if len(self._batch) >= BATCH_ENTRIES or self._batch_bytes >= BATCH_BYTES:
                await self._append()
        if page.is_first:
            self._last_in_page = 0
        if page.entries:
            self._last_in_page = page.entries[-1].packet_id
        if page.is_last and (page.last_packet_id != self._last_in_page or not self._last_in_page):
            self._ends.append((page.client_id, page.last_packet_id, self._last_in_page))

    async def _append(self) -> None:
        # Trap 22: what is being written is let go only when the write has ended well; a batch
        # that collects meanwhile is another list.
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if batch:
            try:
                await self._queue.append(batch, now_us=self._now_us, limit=QUEUE_LIMIT_MAX)
            except UsageError as error:
                # A client id that this layout has no keys for: nothing of ours is wrong.
                raise ConfigError(error.message, hint=error.hint) from error

    async def flush(self) -> None:
        """See ``Target.flush``."""
        await self._append()
        ends, self._ends = self._ends, []
        for client_id, packet_id, _ in ends:
            await self._number_from(client_id, packet_id)

    async def _number_from(self, client_id: str, packet_id: int) -> None:
        """Make a queue go on after a packet identifier."""
        stats = await self._queue.stats(client_id)
        if stats is None and not packet_id:
            # Nothing was ever queued for it; that it is known is all there is.
            await self._queue.take(client_id, epoch=EPOCH)
        if not packet_id or (stats is not None and stats.last_packet_id == packet_id):
            return
        if await self._holds(client_id, packet_id):
            # An entry further up has it, and would go for the new one: the queue goes on after
            # its last entry.
            return
        await self._queue.take(client_id, epoch=max(EPOCH, stats.epoch if stats else 0))
        mark = NewEntry(client_id, Message("perdure", b"", 1), 1, packet_id=packet_id)
        await self._queue.append([mark], now_us=self._now_us, limit=QUEUE_LIMIT_MAX)
        await self._queue.acknowledge(
            client_id, [packet_id], epoch=max(EPOCH, stats.epoch if stats else 0)
        )

    async def _holds(self, client_id: str, packet_id: int) -> bool:
        async for page in _pages(self._queue, client_id):
            if any(entry.packet_id == packet_id for entry in page):
                return True
        return False

    async def sum_of(self, client_id: str) -> QueueSum | None:
        """See ``Target.sum_of``."""
        summing = Summing()
        is_empty = True
        async for page in _pages(self._queue, client_id):
            for entry in page:
                is_empty = False
                summing.add(owed_of(entry, entry.packet_id))
        if is_empty and await self._queue.stats(client_id) is None:
            return None
        return summing.result()

    def refusal(self, client_id: str) -> str:
        """See ``Target.refusal``: never."""
        return ""

    async def close(self) -> None:
        """See ``Target.close``."""
        await self._queue.close()


@final
class QueueSource:
    """A store of device queues of ours, which is not changed.

    Args:
        queue: the store; closed with the source.
    """

    def __init__(self, queue: DeviceQueue) -> None:
        self._queue = queue

    async def plan(self, entries_max: int) -> AsyncIterator[Range]:
        """See ``Source.plan``."""
        number = entries = 0
        clients: list[str] = []
        async for stats in self._queue.clients():
            count = max(1, stats.publish_count + stats.pubrel_count)
            if clients and entries + count > entries_max:
                yield Range(number, entries, clients=tuple(clients))
                number, entries, clients = number + 1, 0, []
            entries += count
            clients.append(stats.client_id)
        if clients:
            yield Range(number, entries, clients=tuple(clients))

    async def read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        """See ``Source.read``."""
        for client_id in part.clients:
            stats = await self._queue.stats(client_id)
            last_packet_id = stats.last_packet_id if stats else 0
            parts = partial(_pages, self._queue, client_id)
            async for page in client_pages(client_id, last_packet_id, parts, settings):
                yield page

    async def close(self) -> None:
        """See ``Source.close``."""
        await self._queue.close()


async def client_pages(
    client_id: str,
    last_packet_id: int,
    parts: Callable[[], AsyncIterator[list[QueuedEntry]]],
    settings: Settings,
) -> AsyncIterator[PendingPage]:
    """A client's queue, which is read twice: for its identifiers, then for its messages.

    Args:
        client_id: whose.
        last_packet_id: as stored.
        parts: begins to read the queue, part by part.
        settings: how.
    """
    light: list[tuple[int, bool, bool]] = []
    async for entries in parts():
        light += [
            (e.packet_id, e.state is EntryState.PUBREL, not is_expired(e, settings.now_us))
            for e in entries
        ]
    kept = [each for each in light if each[2]]
    losses = Losses(expired=len(light) - len(kept))
    resolved = resolve(
        [each[0] for each in kept],
        [each[1] for each in kept],
        last_packet_id=last_packet_id,
        unique=settings.unique,
    )
    losses.renumbered, losses.repeated = resolved.renumbered, resolved.repeated
    numbers = iter(resolved.identifiers)
    waiting: PendingPage | None = None
    async for entries in parts():
        taken: list[PendingEntry] = []
        for entry in entries:
            if not is_expired(entry, settings.now_us):
                packet_id = next(numbers, 0)
                if packet_id:
                    taken.append(owed_of(entry, packet_id))
        if waiting is not None:
            yield waiting
        is_first = waiting is None
        waiting = PendingPage(
            client_id,
            resolved.last_packet_id,
            taken,
            is_first,
            False,
            losses if is_first else Losses(),
        )
    if waiting is None:
        waiting = PendingPage(client_id, resolved.last_packet_id, [], losses=losses)
    yield msgspec.structs.replace(waiting, is_last=True)


def owed_of(entry: QueuedEntry, packet_id: int) -> PendingEntry:
    """An entry of ours in the form of all sources. Its place is its serial number, which no
    entry that expires before it can change; TBMQ counts them from 0."""
    message = entry.message
    released = entry.state is EntryState.PUBREL
    return PendingEntry(
        entry.serial + 1,
        packet_id,
        released,
        message.topic,
        message.payload,
        2 if released else entry.qos,
        entry.retain,
        message.properties,
        entry.identifiers,
        message.published_at_us,
        0 if released else message.expires_at_us,
        entry.forget_at_us,
        message.publisher,
    )


def _new(client_id: str, entry: PendingEntry) -> NewEntry:
    return NewEntry(
        client_id,
        entry.message(),
        entry.qos,
        entry.retain,
        entry.identifiers,
        position=entry.place,
        packet_id=entry.packet_id,
        state=EntryState.PUBREL if entry.released else EntryState.PUBLISH,
        forget_at_us=entry.forget_at_us,
    )


async def _pages(queue: DeviceQueue, client_id: str) -> AsyncIterator[list[QueuedEntry]]:
    after: int | None = -1
    while after is not None:
        page = await queue.read(
            client_id,
            after_serial=after,
            limit=PAGE_ENTRIES,
            bytes_max=PAGE_BYTES,
            now_us=_NOTHING_EXPIRES,
        )
        if page.entries:
            yield page.entries
        after = page.next_after
