"""All queues of a layout: their names, and their numbers page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from perdure.storage.device_queue import QueueStats
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command, Reply

PAGE: Final = 256
"""Queues that are asked together."""


class NamesKeys(Protocol):
    """What listing needs of a layout."""

    @property
    def pattern(self) -> bytes:
        """Matches a key of every queue, and maybe others."""
        ...

    def client_id(self, key: bytes) -> str | None:
        """Whose queue a key belongs to; None = nobody's."""
        ...

    def stats(self, client_id: str) -> Command:
        """Asks for the numbers of a queue."""
        ...


async def names(client: RedisClient, layout: NamesKeys) -> set[bytes]:
    """Client ids of all queues, in memory: Redis has no order."""
    found = set()
    async for keys in client.scan(layout.pattern):
        for key in keys:
            client_id = layout.client_id(key)
            if client_id is not None:
                found.add(client_id.encode())
    return found


async def all_stats(
    client: RedisClient,
    layout: NamesKeys,
    stats_of: Callable[[str, Reply], QueueStats | None],
    *,
    after: str,
) -> AsyncIterator[QueueStats]:
    """See ``DeviceQueue.clients``."""
    start = after.encode()
    ordered = sorted(name for name in await names(client, layout) if not start or name > start)
    for at in range(0, len(ordered), PAGE):
        page = [name.decode() for name in ordered[at : at + PAGE]]
        replies = await client.execute([layout.stats(name) for name in page])
        for client_id, reply in zip(page, replies, strict=True):
            stats = stats_of(client_id, reply)
            # It may have been discarded meanwhile.
            if stats is not None:
                yield stats
