"""The reference device queue: one dictionary for each client, nothing on disk.

It says what every backend does, in the plainest way; the contract tests compare the others with
it. It never suspends, so a call is atomic for all clients together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import final

import msgspec

from perdure.errors import Fenced, UsageError
from perdure.model import Message
from perdure.storage.device_queue import (
    Appended,
    EntryState,
    NewEntry,
    QueuedEntry,
    QueuePage,
    QueueStats,
    Trimmed,
    check_append,
    is_expired,
    next_packet_id,
)


@final
class _Queue:
    """One client's queue; ``entries`` by serial, which is also the order of insertion."""

    __slots__ = ("entries", "epoch", "last_packet_id", "last_position", "last_serial")

    def __init__(self) -> None:
        self.entries: dict[int, QueuedEntry] = {}
        self.epoch = 0
        self.last_packet_id = 0
        self.last_position = 0
        self.last_serial = 0

    def publishes(self) -> list[QueuedEntry]:
        return [entry for entry in self.entries.values() if entry.state is EntryState.PUBLISH]

    def find(self, packet_id: int) -> QueuedEntry | None:
        """The oldest entry with an identifier."""
        for entry in self.entries.values():
            if entry.packet_id == packet_id:
                return entry
        return None

    def drop(self, entry: QueuedEntry) -> Trimmed:
        del self.entries[entry.serial]
        return Trimmed(entry.serial, entry.packet_id, entry.state)


@final
class MemoryDeviceQueue:
    """The queues of all persistent clients, in memory."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    async def take(self, client_id: str, *, epoch: int) -> QueueStats:
        """See ``DeviceQueue.take``."""
        queue = self._queues.get(client_id) or _Queue()
        if epoch < queue.epoch:
            raise Fenced(f"the queue of {client_id!r} belongs to epoch {queue.epoch}, not {epoch}")
        queue.epoch = epoch
        self._queues[client_id] = queue
        return _stats(client_id, queue)

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        """See ``DeviceQueue.append``."""
        check_append(entries, limit=limit)
        by_client: dict[str, list[int]] = {}
        for index, entry in enumerate(entries):
            by_client.setdefault(entry.client_id, []).append(index)
        results: dict[int, Appended] = {}
        for client_id, indexes in by_client.items():
            queue = self._queues.get(client_id) or _Queue()
            _check_serials(queue, [entries[index] for index in indexes])
            self._queues[client_id] = queue
            for index in indexes:
                results[index] = _append(queue, entries[index], limit)
        return [results[index] for index in range(len(entries))]

    async def read(
        self, client_id: str, *, after_serial: int, limit: int, bytes_max: int, now_us: int
    ) -> QueuePage:
        """See ``DeviceQueue.read``."""
        queue = self._queues.get(client_id)
        if queue is None:
            return QueuePage([], None)
        page: list[QueuedEntry] = []
        size = 0
        for entry in list(queue.entries.values()):
            if entry.serial <= after_serial:
                continue
            if is_expired(entry, now_us):
                queue.drop(entry)
                continue
            size += len(entry.message.payload)
            if page and (len(page) == limit or size > bytes_max):
                return QueuePage(page, page[-1].serial)
            page.append(entry)
        return QueuePage(page, None)

    async def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> int:
        """See ``DeviceQueue.acknowledge``."""
        queue = self._owned(client_id, epoch)
        if queue is None:
            return 0
        count = 0
        for packet_id in packet_ids:
            entry = queue.find(packet_id)
            if entry is not None:
                queue.drop(entry)
                count += 1
        return count

    async def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int = 0
    ) -> int:
        """See ``DeviceQueue.release``."""
        queue = self._owned(client_id, epoch)
        if queue is None:
            return 0
        count = 0
        for packet_id in packet_ids:
            entry = queue.find(packet_id)
            if entry is None:
                continue
            if entry.state is EntryState.PUBLISH:
                queue.entries[entry.serial] = _released(entry, forget_at_us)
            count += 1
        return count

    async def trim_through(self, client_id: str, serial: int, *, epoch: int) -> int:
        """See ``DeviceQueue.trim_through``."""
        queue = self._owned(client_id, epoch)
        if queue is None:
            return 0
        gone = [entry for entry in queue.entries.values() if entry.serial <= serial]
        for entry in gone:
            queue.drop(entry)
        return len(gone)

    async def discard(self, client_id: str, *, epoch: int) -> bool:
        """See ``DeviceQueue.discard``."""
        if self._owned(client_id, epoch) is None:
            return False
        del self._queues[client_id]
        return True

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``DeviceQueue.stats``."""
        queue = self._queues.get(client_id)
        return None if queue is None else _stats(client_id, queue)

    async def clients(self, *, after: str = "") -> AsyncIterator[QueueStats]:
        """See ``DeviceQueue.clients``."""
        for client_id in sorted(self._queues, key=str.encode):
            queue = self._queues.get(client_id)
            if queue is not None and (not after or client_id.encode() > after.encode()):
                yield _stats(client_id, queue)

    async def sweep(self, *, now_us: int, limit: int) -> int:
        """See ``DeviceQueue.sweep``."""
        count = 0
        for queue in self._queues.values():
            for entry in list(queue.entries.values()):
                if count == limit:
                    return count
                if is_expired(entry, now_us):
                    queue.drop(entry)
                    count += 1
        return count

    async def close(self) -> None:
        """Nothing is buffered."""

    def _owned(self, client_id: str, epoch: int) -> _Queue | None:
        queue = self._queues.get(client_id)
        if queue is not None and queue.epoch != epoch:
            raise Fenced(f"the queue of {client_id!r} belongs to epoch {queue.epoch}, not {epoch}")
        return queue


def _check_serials(queue: _Queue, entries: list[NewEntry]) -> None:
    last_serial, last_position = queue.last_serial, queue.last_position
    for entry in entries:
        if entry.position and entry.position <= last_position:
            continue
        last_position = max(last_position, entry.position)
        if entry.serial and entry.serial <= last_serial:
            raise UsageError(f"serial {entry.serial} does not follow {last_serial}")
        last_serial = entry.serial or last_serial + 1


def _append(queue: _Queue, new: NewEntry, limit: int) -> Appended:
    if new.position:
        if new.position <= queue.last_position:
            return Appended(0, 0, repeated=True)
        queue.last_position = new.position
    packet_id = new.packet_id or next_packet_id(queue.last_packet_id)
    serial = new.serial or queue.last_serial + 1
    trimmed: list[Trimmed] = []
    same = queue.find(packet_id)
    if same is not None:
        trimmed.append(queue.drop(same))
    entry = QueuedEntry(
        serial=serial,
        packet_id=packet_id,
        state=EntryState.PUBLISH,
        message=new.message,
        qos=new.qos,
        retain=new.retain,
        identifiers=new.identifiers,
        forget_at_us=new.forget_at_us,
        extra=new.extra,
    )
    if new.state is EntryState.PUBREL:
        entry = _released(entry, new.forget_at_us)
    queue.entries[serial] = entry
    queue.last_packet_id = packet_id
    queue.last_serial = serial
    publishes = queue.publishes()
    trimmed += [queue.drop(oldest) for oldest in publishes[: max(0, len(publishes) - limit)]]
    return Appended(serial, packet_id, trimmed=tuple(sorted(trimmed, key=lambda gone: gone.serial)))


def _released(entry: QueuedEntry, forget_at_us: int) -> QueuedEntry:
    full = entry.message
    message = Message(
        full.topic,
        b"",
        full.qos,
        full.retain,
        full.publisher,
        full.properties,
        0,
        full.published_at_us,
        full.offset,
    )
    return msgspec.structs.replace(
        entry, state=EntryState.PUBREL, message=message, forget_at_us=forget_at_us
    )


def _stats(client_id: str, queue: _Queue) -> QueueStats:
    publish_count = len(queue.publishes())
    return QueueStats(
        client_id=client_id,
        publish_count=publish_count,
        pubrel_count=len(queue.entries) - publish_count,
        payload_bytes=sum(len(entry.message.payload) for entry in queue.entries.values()),
        last_packet_id=queue.last_packet_id,
        last_serial=queue.last_serial,
        last_position=queue.last_position,
        epoch=queue.epoch,
    )
