"""Device queues in the layout ``tbmq``, on a client: the commands of ``tbmq``, sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from perdure.storage.device_queue import (
    Appended,
    NewEntry,
    QueuedEntry,
    QueuePage,
    QueueStats,
    is_expired,
)
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.device_queue import RedisDeviceQueue
from perdure.storage.redis.listing import names
from perdure.storage.redis.replies import number_of
from perdure.storage.redis.tbmq import Place, TbmqLayout, expiries_of, looked_at, stats_of

_LOOK: Final = 1000
"""Entries that are looked at in one call: the server does nothing else meanwhile."""


@final
class TbmqDeviceQueue(RedisDeviceQueue[TbmqLayout]):
    """See ``DeviceQueue``. Times of expiry and ``forget_at_us`` are kept in milliseconds.

    Args:
        client: connected, with ``TbmqLayout.code``; closed with the queue.
        layout: names the keys.
    """

    def __init__(self, client: RedisClient, layout: TbmqLayout) -> None:
        super().__init__(client, layout, stats_of)

    async def take(self, client_id: str, *, epoch: int) -> QueueStats:
        """See ``DeviceQueue.take``."""
        self._check(client_id)
        await self._client.call(self._layout.take(client_id, epoch=epoch))
        stats = await self.stats(client_id)
        assert stats is not None
        return stats

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        """See ``DeviceQueue.append``."""
        for new in entries:
            self._check(new.client_id)
        return await super().append(entries, now_us=now_us, limit=limit)

    async def read(
        self, client_id: str, *, after_serial: int, limit: int, bytes_max: int, now_us: int
    ) -> QueuePage:
        """See ``DeviceQueue.read``."""
        command = self._layout.read(
            client_id, after_serial=after_serial, limit=limit, bytes_max=bytes_max
        )
        while True:
            (reply,) = await self._client.execute([command])
            seen = looked_at(reply, after_serial=after_serial)
            if not seen.missing:
                break
            cleaned = await self._client.call(self._layout.clean(client_id, seen.missing))
            # Fewer: some strings were only on their way to another node.
            if cleaned == len(seen.missing):
                break
        entries: list[QueuedEntry] = []
        expired: list[QueuedEntry] = []
        for entry in seen.entries:
            (expired if is_expired(entry, now_us) else entries).append(entry)
        if expired:
            places = [
                Place(self._layout.member(client_id, entry.packet_id), entry.serial)
                for entry in expired
            ]
            await self._client.call(self._layout.remove(client_id, places))
        return QueuePage(entries, seen.next_after)

    async def trim_through(self, client_id: str, serial: int, *, epoch: int) -> int:
        """See ``DeviceQueue.trim_through``. More than a thousand entries go by the thousand."""
        count = 0
        while True:
            found = await self._places(client_id, after_serial=-1)
            places = [place for place in found if place.serial <= serial]
            # Also with nothing to delete: whether the caller is the owner is answered there.
            command = self._layout.remove(client_id, places, epoch=epoch)
            count += number_of(await self._client.call(command))
            if len(places) < _LOOK:
                return count

    async def discard(self, client_id: str, *, epoch: int) -> bool:
        """See ``DeviceQueue.discard``."""
        places: list[Place] = []
        while True:
            command = self._layout.discard(client_id, places, epoch=epoch)
            answer = number_of(await self._client.call(command))
            if answer != 2:
                return bool(answer)
            places = []
            after = -1
            while found := await self._places(client_id, after_serial=after):
                places += found
                after = found[-1].serial

    async def sweep(self, *, now_us: int, limit: int) -> int:
        """See ``DeviceQueue.sweep``. Redis forgets the messages; this takes them off the sets."""
        count = 0
        for name in await names(self._client, self._layout):
            if count == limit:
                break
            client_id = name.decode()
            after = -1
            while count < limit:
                (reply,) = await self._client.execute(
                    [self._layout.look(client_id, after_serial=after, limit=_LOOK)]
                )
                found = expiries_of(reply)
                count += await self._sweep_page(client_id, found, now_us, limit - count)
                if len(found) < _LOOK:
                    break
                after = found[-1][0].serial
        return count

    async def _sweep_page(
        self, client_id: str, found: list[tuple[Place, int]], now_us: int, limit: int
    ) -> int:
        gone = [place for place, expiry_ms in found if expiry_ms == -2][:limit]
        expired = [place for place, expiry_ms in found if 0 <= expiry_ms * 1000 <= now_us]
        expired = expired[: limit - len(gone)]
        count = 0
        if gone:
            count += number_of(await self._client.call(self._layout.clean(client_id, gone)))
        if expired:
            count += number_of(await self._client.call(self._layout.remove(client_id, expired)))
        return count

    async def _places(self, client_id: str, *, after_serial: int) -> list[Place]:
        command = self._layout.look(client_id, after_serial=after_serial, limit=_LOOK)
        (reply,) = await self._client.execute([command])
        return [place for place, _ in expiries_of(reply)]

    def _check(self, client_id: str) -> None:
        if self._client.address.cluster:
            self._layout.check_client(client_id)
