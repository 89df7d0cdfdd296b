"""Device queues on a client: the calls that are the same in both layouts.

A layout builds the commands; who sends them and reads the replies is here. The rest of
``DeviceQueue`` differs with what a layout keeps, and is in ``compact_queue`` and ``tbmq_queue``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from perdure.storage.device_queue import Appended, NewEntry, QueueStats
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Reply
from perdure.storage.redis.grouping import append_grouped
from perdure.storage.redis.listing import NamesKeys, all_stats
from perdure.storage.redis.replies import number_of


class QueueLayout(NamesKeys, Protocol):
    """The commands that both layouts have."""

    def append(self, client_id: str, entries: Sequence[NewEntry], *, limit: int) -> Command:
        """Entries of one client."""
        ...

    def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> Command:
        """Deletes entries."""
        ...

    def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int
    ) -> Command:
        """Makes entries PUBRELs."""
        ...


L = TypeVar("L", bound=QueueLayout)


class RedisDeviceQueue(Generic[L]):
    """A part of ``DeviceQueue``.

    Args:
        client: connected, with the layout's code; closed with the queue.
        layout: names the keys.
        stats_of: reads the layout's reply about one queue.
    """

    def __init__(
        self, client: RedisClient, layout: L, stats_of: Callable[[str, Reply], QueueStats | None]
    ) -> None:
        self._client = client
        self._layout = layout
        self._stats_of = stats_of

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        """See ``DeviceQueue.append``."""
        return await append_grouped(
            self._client,
            entries,
            lambda client_id, group: self._layout.append(client_id, group, limit=limit),
            limit=limit,
        )

    async def acknowledge(self, client_id: str, packet_ids: Sequence[int], *, epoch: int) -> int:
        """See ``DeviceQueue.acknowledge``."""
        command = self._layout.acknowledge(client_id, packet_ids, epoch=epoch)
        return number_of(await self._client.call(command))

    async def release(
        self, client_id: str, packet_ids: Sequence[int], *, epoch: int, forget_at_us: int = 0
    ) -> int:
        """See ``DeviceQueue.release``."""
        command = self._layout.release(
            client_id, packet_ids, epoch=epoch, forget_at_us=forget_at_us
        )
        return number_of(await self._client.call(command))

    async def stats(self, client_id: str) -> QueueStats | None:
        """See ``DeviceQueue.stats``."""
        (reply,) = await self._client.execute([self._layout.stats(client_id)])
        return self._stats_of(client_id, reply)

    def clients(self, *, after: str = "") -> AsyncIterator[QueueStats]:
        """See ``DeviceQueue.clients``. Holds all client ids in memory: Redis has no order."""
        return all_stats(self._client, self._layout, self._stats_of, after=after)

    async def close(self) -> None:
        """See ``DeviceQueue.close``."""
        await self._client.close()
