"""The registry: who subscribes to which channels, and what is known of devices.

What one call changes is several keys, which in a cluster are on several nodes, so it is not one
step. The order of the steps is such that a call that is cut off in the middle leaves nothing that
misleads: that a subscription ends is noted before it begins, and nobody looks for subscribers of a
filter that is not there. Everything can be repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Self, final

import msgspec

from perdure.content import ContentFilter, parse_filter
from perdure.content.document import Content
from perdure.errors import ConfigError
from perdure.registry import writes
from perdure.registry.channel import (
    PARTITIONS,
    Channel,
    DeviceTransport,
    Keys,
    check_channel,
    check_device,
    filter_id_of,
)
from perdure.registry.device import Device, iso, read_device
from perdure.registry.reading import Subscribed, held_by, pairs_of, scanned, scanned_pages
from perdure.registry.removal import take_out_all
from perdure.registry.wanted import KnownFilters, Wanted, find_wanting
from perdure.storage.redis import Command, RedisClient, Reply, parse_url
from perdure.storage.redis.commands import check

PAGE_WRITTEN: Final = 1_000
"""Subscriptions of one page."""
PAGES_AT_ONCE: Final = 4
"""Pages of subscriptions that are on their way at the same time."""


@final
class Registry:
    """The registry on one Redis server or cluster; ``open`` makes it.

    Args:
        client: connected.
        keys: how keys are named.
    """

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self.client = client
        self.keys = keys
        self._known = KnownFilters()

    @classmethod
    async def open(cls, url: str, *, partitions: int = PARTITIONS, prefix: str = "nxx:") -> Self:
        """Connect.

        Args:
            url: ``redis://`` for one server, ``redis+cluster://`` for a cluster.
            partitions: as all other workers have it (``redis.partitions``).
            prefix: of all keys.

        Raises:
            ConfigError: the URL, the login or the partitions are wrong.
            StorageUnavailable: nobody is there.
        """
        keys = Keys(partitions, prefix)
        return cls(await RedisClient.connect(parse_url(url)), keys)

    async def close(self) -> None:
        """Hang up."""
        await self.client.close()

    # -- subscriptions ---------------------------------------------------------------------

    async def subscribe(
        self,
        device: DeviceTransport,
        channel: Channel,
        *,
        where: str = "",
        filter_id: str = "",
        until_s: int = 0,
    ) -> str:
        """Subscribe a device to a channel.

        Args:
            device: who.
            channel: to what.
            where: a filter; empty = everything.
            filter_id: of the filter; empty = made from its text.
            until_s: Unix time at which it ends (``Upkeep.sweep``); 0 = never.

        Returns:
            The filter's id, or nothing.

        Raises:
            ConfigError: the device, the channel or the filter cannot be one.
        """
        check_device(device)
        check_channel(channel)
        text = ""
        if where:
            text = writes.checked_filter(where)
            filter_id = writes.checked_filter_id(filter_id or filter_id_of(text))
        elif filter_id and await self.get_filter(channel, filter_id) is None:
            raise ConfigError(f"the channel {channel.key} has no filter {filter_id!r}")
        for step in writes.subscribed(
            self.keys, device, channel, filter_id=filter_id, filter_text=text, until_s=until_s
        ):
            await self.write(step)
        return filter_id

    async def subscribe_all(
        self, wanted: Sequence[tuple[DeviceTransport, Channel, str]], *, until_s: int = 0
    ) -> None:
        """Subscribe many at once: devices, channels, filters.

        One round trip for each page, and one before it where they end; one page is made while
        others are on their way.

        Raises:
            ConfigError: one cannot be; nothing of its page was written.
        """
        under_way: deque[asyncio.Task[None]] = deque()
        try:
            for first in range(0, len(wanted), PAGE_WRITTEN):
                page = wanted[first : first + PAGE_WRITTEN]
                steps = writes.subscribed_all(self.keys, page, until_s)
                under_way.append(asyncio.create_task(self._in_steps(*steps)))
                await asyncio.sleep(0)  # it goes out while the next one is made
                if len(under_way) == PAGES_AT_ONCE:
                    await under_way.popleft()
            while under_way:
                await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def unsubscribe(
        self, device: DeviceTransport, channel: Channel, filter_id: str = ""
    ) -> bool:
        """Take a subscription back; a filter that nobody subscribes with goes, too.

        Returns:
            Whether there was one.
        """
        key = self.keys.subscription(check_channel(channel), filter_id)
        return await self.take_out(device, key)

    async def take_out(self, device: DeviceTransport, key: bytes) -> bool:
        """``unsubscribe`` by the subscription's key."""
        return await take_out_all(self, [(device, key)]) > 0

    async def subscriptions(self, device_id: str) -> list[Subscribed]:
        """What a device subscribes to, by whomever it was written; looks at all subscriptions."""
        return (await self.subscriptions_of([device_id]))[device_id]

    async def subscriptions_of(self, device_ids: Collection[str]) -> dict[str, list[Subscribed]]:
        """What devices subscribe to, in one look at all subscriptions."""
        return await held_by(self.client, self.keys, device_ids)

    async def subscribers(self, channel: Channel, filter_id: str = "") -> list[DeviceTransport]:
        """Who subscribes to a channel, or to it with a filter."""
        members = await self.members(self.keys.subscription(channel, filter_id))
        return [DeviceTransport.parse(member) for member in members]

    async def wanting(self, change: Channel, document: Any) -> Wanted:
        """Which devices want a change.

        Args:
            change: what has changed, as narrow as it is known.
            document: of which filters are asked: the object, as JSON has it.

        Raises:
            ConfigError: a channel has more than ``FILTERS_MAX`` filters.
        """
        return await self.wanting_content(change, Content(msgspec.json.encode(document)))

    async def wanting_content(self, change: Channel, content: Content) -> Wanted:
        """``wanting``, of the content of a message."""
        return await find_wanting(self.client, self.keys, change, content, self._known)

    # -- filters ---------------------------------------------------------------------------

    async def set_filter(self, channel: Channel, filter_id: str, where: str) -> None:
        """Give a channel a filter, or change it for all who subscribe with it.

        Raises:
            ConfigError: it is none.
        """
        writes.checked_filter_id(filter_id)
        key = self.keys.filters(check_channel(channel))
        await self.write([Command(("HSET", key, filter_id, writes.checked_filter(where)), key)])

    async def get_filter(self, channel: Channel, filter_id: str) -> str | None:
        """The text of a filter."""
        key = self.keys.filters(channel)
        found = await self.client.call(Command(("HGET", key, filter_id), key))
        return found.decode() if isinstance(found, bytes) else None

    async def filters(self, channel: Channel) -> dict[str, ContentFilter]:
        """All filters of a channel, by id.

        Raises:
            ConfigError: one cannot be read.
        """
        key = self.keys.filters(channel)
        found = pairs_of(await self.client.call(Command(("HGETALL", key), key)))
        try:
            return {name: parse_filter(text) for name, text in sorted(found.items())}
        except ValueError as error:
            raise ConfigError(f"a filter of {channel.key} cannot be read: {error}") from error

    async def delete_filter(self, channel: Channel, filter_id: str) -> bool:
        """Take a filter from a channel, and its subscribers with it; whether there was one."""
        key = self.keys.filters(channel)
        was_there = await self.get_filter(channel, filter_id) is not None
        subscription = self.keys.subscription(channel, filter_id)
        async for page in scanned_pages(self.client, [subscription]):
            for members in page.values():
                split = (each.rpartition("|") for each in members)
                ended = [(DeviceTransport(one, by), subscription) for one, _, by in split]
                await take_out_all(self, ended)
        await self.write(
            [Command(("HDEL", key, filter_id), key), Command(("DEL", subscription), subscription)]
        )
        return was_there

    # -- devices ---------------------------------------------------------------------------

    async def connected(
        self,
        device: DeviceTransport,
        *,
        now_us: int,
        user_id: str = "",
        user_agent: str = "",
        worker: str = "",
    ) -> None:
        """A device is connected by a transport.

        Args:
            device: who.
            now_us: wall time.
            user_id: whose it is; empty = as it was.
            user_agent: what it says it is; empty = as it was.
            worker: to whom it is connected.
        """
        await self.write(
            writes.connected(
                self.keys,
                device,
                now_us=now_us,
                user_id=user_id,
                user_agent=user_agent,
                worker=worker,
            )
        )

    async def disconnected(self, device: DeviceTransport, *, now_us: int, worker: str = "") -> None:
        """A device's connection by a transport is gone; it keeps what it subscribes to."""
        await self.write(writes.disconnected(self.keys, device, now_us=now_us, worker=worker))

    async def seen(self, device_ids: Iterable[str], *, now_us: int) -> None:
        """Something was heard of devices."""
        at = iso(now_us)
        names = [self.keys.device(device_id) for device_id in device_ids]
        await self.write([writes.hset(key, {"lastSeenAt": at}) for key in names])

    async def device(self, device_id: str) -> Device | None:
        """What is known of a device; None = nothing."""
        found = await self.devices([device_id])
        return found[0] if found else None

    async def devices(self, device_ids: Sequence[str]) -> list[Device]:
        """What is known of devices, in one round trip; those of which nothing is are left out."""
        keys = [self.keys.device(device_id) for device_id in device_ids]
        replies = await self.write([Command(("HGETALL", key), key) for key in keys])
        found = [pairs_of(reply) for reply in replies]
        return [
            read_device(device_id, fields)
            for device_id, fields in zip(device_ids, found, strict=True)
            if fields
        ]

    async def devices_of(self, user_id: str) -> list[str]:
        """The devices of a user, as far as they were connected through this library."""
        return sorted(await self.members(self.keys.of_user(user_id)))

    async def forget(self, *device_ids: str) -> int:
        """Forget devices: what is known of them and what they subscribe to.

        Returns:
            Subscriptions that are gone; ``subscriptions_of`` finds them.
        """
        ended = [
            (
                DeviceTransport(device_id, each.transport),
                self.keys.subscription(each.channel, each.filter_id),
            )
            for device_id, held in (await self.subscriptions_of(device_ids)).items()
            for each in held
        ]
        count = await take_out_all(self, ended)
        commands: list[Command] = []
        for known in await self.devices(device_ids):
            if known.user_id:
                mine = self.keys.of_user(known.user_id)
                commands.append(Command(("SREM", mine, known.device_id), mine))
        names = [self.keys.device(device_id) for device_id in device_ids]
        await self.write([*commands, *(Command(("DEL", key), key) for key in names)])
        return count

    # -- Redis -----------------------------------------------------------------------------

    async def write(self, commands: Sequence[Command]) -> list[bytes | int | list[Reply] | None]:
        """Send commands together, one step of ``writes`` or any others; their replies."""
        return [check(reply) for reply in await self.client.execute(commands)]

    async def _in_steps(self, *steps: Sequence[Command]) -> None:
        for step in steps:
            await self.write(step)

    async def members(self, key: bytes) -> list[str]:
        """The members of a set, sorted."""
        return sorted(set(await scanned(self.client, [key])))
