"""What a registry needs now and then: expiry, what workers and devices have left, other partitions.

Everything works in pages, may run beside the workers and beside itself, and may be cut off and run
again. What is read by SCAN may be behind what is written meanwhile, so nothing is taken out that
was not looked at again just before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, final

from perdure.registry import writes
from perdure.registry.channel import EXPIRY_SHARDS, DeviceTransport, Keys
from perdure.registry.device import Device
from perdure.registry.reading import scanned_pages, subscription_pages
from perdure.registry.registry import Registry
from perdure.registry.removal import take_out_all
from perdure.storage.redis import Command

SHARDS_AT_ONCE: Final = 256
DUE_AT_ONCE: Final = 100
"""Expiries of one shard that are looked at in a batch."""
LEFT_AT_ONCE: Final = 128
"""Devices of a worker that is gone: between the look at one and what is written of it somebody
may connect it."""
LOOKED_AT_AT_ONCE: Final = 500
"""Subscriptions that are looked at, and then taken out or moved, in a batch."""


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
                entries: list[tuple[bytes, bytes]] = []
                for key, due in zip(todo, found, strict=True):
                    assert isinstance(due, list)
                    entries += [(key, entry) for entry in due if isinstance(entry, bytes)]
                    if len(due) == DUE_AT_ONCE:
                        following.append(key)
                for at in range(0, len(entries), DUE_AT_ONCE):
                    claimed = await self._claimed(entries[at : at + DUE_AT_ONCE], now_s)
                    ended = [writes.parse_expiry(self._keys, entry) for entry in claimed]
                    await take_out_all(self._registry, ended)
                    count += len(claimed)
                todo = following
        return Swept(count)

    async def leave(self, worker: str, *, now_us: int) -> int:
        """A worker is gone, or about to go: its devices are not connected to it any more.

        Returns:
            How many there were.
        """
        key = self._keys.of_worker(worker)
        members = [DeviceTransport.parse(each) for each in await self._registry.members(key)]
        count = 0
        for first in range(0, len(members), LEFT_AT_ONCE):
            page = members[first : first + LEFT_AT_ONCE]
            names = list(dict.fromkeys(device.device_id for device in page))
            known = {each.device_id: each for each in await self._registry.devices(names)}
            commands: list[Command] = []
            for device in page:
                found = known.get(device.device_id)
                connection = None if found is None else found.connections.get(device.transport)
                if connection is not None and connection.connected and connection.worker == worker:
                    commands += writes.disconnected(self._keys, device, now_us=now_us)
                    count += 1
            await self._registry.write(commands)
        await self._client.call(Command(("DEL", key), key))
        return count

    async def orphans(self, *, remove: bool) -> Orphans:
        """Find, and if wanted take out, subscriptions of devices that have no hash."""
        looked_at = found = 0
        async for members in self._subscriptions():
            looked_at += len(members)
            for first in range(0, len(members), LOOKED_AT_AT_ONCE):
                page = members[first : first + LOOKED_AT_AT_ONCE]
                names = [self._keys.device(device.device_id) for device, _ in page]
                known = await self._registry.write([Command(("EXISTS", key), key) for key in names])
                ended = [each for each, is_known in zip(page, known, strict=True) if not is_known]
                found += len(ended)
                if remove:
                    await take_out_all(self._registry, ended)
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
        async for members in self._subscriptions():
            moving: list[tuple[DeviceTransport, bytes, bytes]] = []
            for device, key in members:
                channel_key, filter_id, partition = self._keys.parse_subscription(key)
                place = target.partition(channel_key)
                if partition != place:
                    to = target.subscription_in(channel_key, filter_id, place)
                    moving.append((device, key, to))
            for first in range(0, len(moving), LOOKED_AT_AT_ONCE):
                await self._move(moving[first : first + LOOKED_AT_AT_ONCE])
            moved += len(moving)
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

    async def _subscriptions(self) -> AsyncIterator[list[tuple[DeviceTransport, bytes]]]:
        """Subscriptions in pages: devices, and the keys that they are in.

        What is no device, which only others can have written, is left out. One that is taken out
        and put in again meanwhile may come twice.
        """
        async for names in subscription_pages(self._client, self._keys):
            async for page in scanned_pages(self._client, names):
                yield [
                    (DeviceTransport(device_id, transport), key)
                    for key, members in page.items()
                    for device_id, _, transport in (each.rpartition("|") for each in members)
                    if device_id and transport
                ]

    async def _claimed(self, entries: Sequence[tuple[bytes, bytes]], now_s: int) -> list[bytes]:
        """The expiries, shard and entry, that are still due and that nobody else has taken."""
        scores = await self._registry.write(
            [Command(("ZSCORE", key, entry), key) for key, entry in entries]
        )
        due = [
            each
            for each, score in zip(entries, scores, strict=True)
            if isinstance(score, bytes) and float(score) <= now_s
        ]
        taken = await self._registry.write(
            [Command(("ZREM", key, entry), key) for key, entry in due]
        )
        return [entry for (_, entry), is_ours in zip(due, taken, strict=True) if is_ours]

    async def _move(self, moving: Sequence[tuple[DeviceTransport, bytes, bytes]]) -> None:
        """Move subscriptions, and when they end, from one key to another."""
        ends: list[tuple[bytes, bytes, bytes]] = []
        for device, *both in moving:
            old, new = (writes.expiry_entry(self._keys, device, key) for key in both)
            ends.append((self._keys.expiry(device.device_id), old, new))
        scores = await self._registry.write(
            [Command(("ZSCORE", expiry, old), expiry) for expiry, old, _ in ends]
        )
        first: list[Command] = []
        second: list[Command] = []
        for (device, key, to), (expiry, old, new), score in zip(moving, ends, scores, strict=True):
            if isinstance(score, bytes):
                first.append(Command(("ZADD", expiry, score, new), expiry))
                second.append(Command(("ZREM", expiry, old), expiry))
            first.append(Command(("SADD", to, str(device)), to))
            second.append(Command(("SREM", key, str(device)), key))
        await self._registry.write(first)
        await self._registry.write(second)
