"""Device queues in the layout ``compact``, on a client: the commands of ``compact``, sent."""

from __future__ import annotations

from typing import Final, final

from perdure.storage.device_queue import QueuePage, QueueStats
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import check
from perdure.storage.redis.compact import CompactLayout, is_whole, page_of, stats_of
from perdure.storage.redis.device_queue import RedisDeviceQueue
from perdure.storage.redis.listing import PAGE
from perdure.storage.redis.replies import number_of

_SWEEP_LOOK: Final = 512
"""Entries that one call of the server looks at: it does nothing else meanwhile."""
_DEEP_MAX: Final = 10_000
"""Deep queues that are remembered; of others a glance is taken in vain."""


@final
class CompactDeviceQueue(RedisDeviceQueue[CompactLayout]):
    """See ``DeviceQueue``.

    Args:
        client: connected, with ``CompactLayout.code``; closed with the queue.
        layout: names the keys.
    """

    def __init__(self, client: RedisClient, layout: CompactLayout) -> None:
        super().__init__(client, layout, stats_of)
        # Clients whose next page is asked of the function at once.
        self._deep: set[str] = set()

    async def take(self, client_id: str, *, epoch: int) -> QueueStats:
        """See ``DeviceQueue.take``."""
        (reply,) = await self._client.execute([self._layout.take(client_id, epoch=epoch)])
        stats = stats_of(client_id, reply)
        assert stats is not None
        return stats

    async def read(
        self, client_id: str, *, after_serial: int, limit: int, bytes_max: int, now_us: int
    ) -> QueuePage:
        """See ``DeviceQueue.read``."""
        if client_id in self._deep:
            reply = None
        else:
            (reply,) = await self._client.execute([self._layout.glance(client_id)])
        if reply is None or not is_whole(reply):
            command = self._layout.read(
                client_id, after_serial=after_serial, limit=limit, bytes_max=bytes_max
            )
            (reply,) = await self._client.execute([command])
        page, expired = page_of(
            reply, after_serial=after_serial, limit=limit, bytes_max=bytes_max, now_us=now_us
        )
        if expired:
            await self._client.call(self._layout.purge(client_id, expired))
        self._note(client_id, is_deep=page.next_after is not None)
        return page

    async def trim_through(self, client_id: str, serial: int, *, epoch: int) -> int:
        """See ``DeviceQueue.trim_through``."""
        command = self._layout.trim_through(client_id, serial, epoch=epoch)
        return number_of(await self._client.call(command))

    async def discard(self, client_id: str, *, epoch: int) -> bool:
        """See ``DeviceQueue.discard``."""
        return bool(await self._client.call(self._layout.discard(client_id, epoch=epoch)))

    async def sweep(self, *, now_us: int, limit: int) -> int:
        """See ``DeviceQueue.sweep``."""
        count = 0
        async for keys in self._client.scan(self._layout.pattern):
            for at in range(0, len(keys), PAGE):
                found = [self._layout.client_id(key) for key in keys[at : at + PAGE]]
                pending = [(client_id, -1, 0) for client_id in found if client_id is not None]
                while pending and count < limit:
                    deleted, pending = await self._sweep_some(pending, now_us, limit - count)
                    count += deleted
        return count

    def _note(self, client_id: str, *, is_deep: bool) -> None:
        if not is_deep:
            self._deep.discard(client_id)
        elif len(self._deep) < _DEEP_MAX:
            self._deep.add(client_id)

    async def _sweep_some(
        self, pending: list[tuple[str, int, int]], now_us: int, limit: int
    ) -> tuple[int, list[tuple[str, int, int]]]:
        """One look into each of some queues; how many were deleted, and where to go on."""
        # Together they must not delete more than the limit.
        now = pending[: max(1, limit // _SWEEP_LOOK)] if limit < len(pending) else pending
        share = max(1, limit // len(now))
        replies = await self._client.execute(
            [
                self._layout.sweep(
                    client_id,
                    now_us=now_us,
                    limit=share,
                    look=_SWEEP_LOOK,
                    after=after,
                    soonest=soonest,
                )
                for client_id, after, soonest in now
            ]
        )
        count, rest = 0, pending[len(now) :]
        for (client_id, _, _), reply in zip(now, replies, strict=True):
            answer = check(reply)
            assert isinstance(answer, list)
            deleted, after, soonest = map(number_of, answer)
            count += deleted
            if after >= 0:
                rest.append((client_id, after, soonest))
        return count, rest
