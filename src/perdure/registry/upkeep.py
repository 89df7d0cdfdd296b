"""What a registry needs now and then: expiry, what workers and devices have left, other partitions.

Everything works in pages, may run beside the workers and beside itself, and may be cut off and run
again. What is read by SCAN may be behind what is written meanwhile, so nothing is taken out that
was not looked at again just before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple, final

from perdure.registry import writes
from perdure.registry.channel import EXPIRY_SHARDS, DeviceTransport, Keys
from perdure.registry.device import Device
from perdure.registry.reading import subscription_pages
from perdure.registry.registry import Registry
from perdure.storage.redis import Command

SHARDS_AT_ONCE: Final = 256
DUE_AT_ONCE: Final = 100
"""Expiries of one shard that are looked at in a batch."""


@final
class Swept(NamedTuple):
    """What a sweep has taken out.

    Attributes:
        expired: subscriptions whose time was over.
    """

    expired: int


@final
class Orphans(NamedTuple):
    """Subscriptions of devices that nobody knows.

    Attributes:
        looked_at: subscriptions.
        found: of a device without a hash.
    """

    looked_at: int
    found: int


@final
class Statistics(NamedTuple):
    """What is in a registry.

    Attributes:
        channels: that anyone subscribes to.
        subscriptions: without and with a filter.
        filtered: with one.
        devices: with a hash.
        connected: of them, by any transport.
        busiest: channels with the most subscriptions, and how many.
    """

    channels: int
    subscriptions: int
    filtered: int
    devices: int
    connected: int
    busiest: list[tuple[str, int]]


@final
class Upkeep:
    """Looks after a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._client = registry.client
        self._keys = registry.keys

    async def sweep(self, now_s: int) -> Swept:
        """Take out the subscriptions whose time is over."""
        count, keys = 0, [self._keys.expiry_shard(shard) for shard in range(EXPIRY_SHARDS)]
        for first in range(0, EXPIRY_SHARDS, SHARDS_AT_ONCE):
            todo = keys[first : first + SHARDS_AT_ONCE]
            while todo:
                found = await self._registry.write(
                    [
                        Command(("ZRANGEBYSCORE", key, 0, now_s, "LIMIT", 0, DUE_AT_ONCE), key)
                        for key in todo
                    ]
                )
                following: list[bytes] = []
                for key, due in zip(todo, found, strict=True):
                    assert isinstance(due, list)
                    for entry in due:
                        assert isinstance(entry, bytes)
                        if await self._claim(key, entry, now_s):
                            await self._registry.take_out(*writes.parse_expiry(self._keys, entry))
                            count += 1
                    if len(due) == DUE_AT_ONCE:
                        following.append(key)
                todo = following
        return Swept(count)

    async def leave(self, worker: str, *, now_us: int) -> int:
        """A worker is gone, or about to go: its devices are not connected to it any more.

        Returns:
            How many there were.
        """
        key = self._keys.of_worker(worker)
        count = 0
        for member in await self._registry.members(key):
            device = DeviceTransport.parse(member)
            known = await self._registry.device(device.device_id)
            connection = None if known is None else known.connections.get(device.transport)
            if connection is not None and connection.connected and connection.worker == worker:
                await self._registry.disconnected(device, now_us=now_us)
                count += 1
        await self._client.call(Command(("DEL", key), key))
        return count

    async def orphans(self, *, remove: bool) -> Orphans:
        """Find, and if wanted take out, subscriptions of devices that have no hash."""
        looked_at = found = 0
        async for key in self._subscriptions():
            for member in await self._registry.members(key):
                looked_at += 1
                device = DeviceTransport.parse(member)
                if await self._registry.device(device.device_id) is None:
                    found += 1
                    if remove:
                        await self._registry.take_out(device, key)
        return Orphans(looked_at, found)

    async def repartition(self, partitions: int) -> int:
        """Move every subscription to where it is with another number of partitions.

        A device is in its new place before it leaves the old one. Workers are told the new number
        first: until they are, they look in the old places.

        Returns:
            Subscriptions that were moved.
        """
        target = Keys(partitions, self._keys.prefix)
        moved = 0
        async for key in self._subscriptions():
            channel_key, filter_id, partition = self._keys.parse_subscription(key)
            if partition == target.partition(channel_key):
                continue
            to = target.subscription_in(channel_key, filter_id, target.partition(channel_key))
            for member in await self._registry.members(key):
                device = DeviceTransport.parse(member)
                await self._move_expiry(device, key, to)
                await self._client.call(Command(("SADD", to, member), to))
                await self._client.call(Command(("SREM", key, member), key))
                moved += 1
        return moved

    async def idle(self, before: str) -> AsyncIterator[Device]:
        """Devices of which nothing was heard for long.

        One that somebody has connected and tells no activity of is not among them: a worker of
        another transport may write no more than the moment of the connection.

        Args:
            before: last heard of before this moment, ISO 8601 in UTC.
        """
        async for device in self._devices():
            is_told = not device.is_connected or device.last_seen_at != device.connected_at
            if is_told and "" < device.last_seen_at < before:
                yield device

    async def statistics(self, *, busiest: int = 10) -> Statistics:
        """Count what there is, by SCAN."""
        by_channel: dict[str, int] = {}
        filtered = 0
        async for page in subscription_pages(self._client, self._keys):
            sizes = await self._registry.write([Command(("SCARD", key), key) for key in page])
            for key, size in zip(page, sizes, strict=True):
                channel_key, filter_id, _ = self._keys.parse_subscription(key)
                assert isinstance(size, int)
                by_channel[channel_key] = by_channel.get(channel_key, 0) + size
                filtered += size if filter_id else 0
        devices = connected = 0
        async for device in self._devices():
            devices += 1
            connected += device.is_connected
        most = sorted(by_channel.items(), key=lambda each: (-each[1], each[0]))[:busiest]
        return Statistics(
            len(by_channel), sum(by_channel.values()), filtered, devices, connected, most
        )

    async def _devices(self) -> AsyncIterator[Device]:
        """Devices, each once, in pages of SCAN."""
        seen: set[bytes] = set()
        prefix = self._keys.device("")
        async for page in self._client.scan(prefix + b"*"):
            names = [key.removeprefix(prefix) for key in page if key not in seen]
            seen.update(page)
            for device in await self._registry.devices([name.decode() for name in names]):
                yield device

    async def _subscriptions(self) -> AsyncIterator[bytes]:
        """Keys of subscriptions, each once."""
        async for page in subscription_pages(self._client, self._keys):
            for key in page:
                yield key

    async def _claim(self, key: bytes, entry: bytes, now_s: int) -> bool:
        """Whether an expiry is still due, and this is who has taken it."""
        score = await self._client.call(Command(("ZSCORE", key, entry), key))
        if not isinstance(score, bytes) or float(score) > now_s:
            return False
        return bool(await self._client.call(Command(("ZREM", key, entry), key)))

    async def _move_expiry(self, device: DeviceTransport, key: bytes, to: bytes) -> None:
        expiry = self._keys.expiry(device.device_id)
        old, new = (writes.expiry_entry(self._keys, device, each) for each in (key, to))
        score = await self._client.call(Command(("ZSCORE", expiry, old), expiry))
        if isinstance(score, bytes):
            await self._client.call(Command(("ZADD", expiry, score, new), expiry))
            await self._client.call(Command(("ZREM", expiry, old), expiry))
