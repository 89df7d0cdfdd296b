"""A broker's clients in the registry: kept like what the broker has, whatever happens between.

``apply`` is told who is connected with which subscriptions, and writes what is different from what
it has written before. After a failure, and at the start, it reads what the registry has of this
broker and goes by that: nothing is believed that may not have come to pass.

Who goes and leaves a durable session is disconnected and stays subscribed, for its messages are
kept; who leaves none is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar, final

from perdure.registry.channel import Channel, DeviceTransport, filter_id_of
from perdure.registry.registry import Registry
from perdure.storage.redis import Command
from perdure.storage.redis.commands import check

AT_ONCE: Final = 64
"""Clients that are written at the same time."""

AWAY_AT_ONCE: Final = 1_000
"""Clients without a connection of which one ``apply`` asks whether their session is still there."""

T = TypeVar("T")


@final
class Held(NamedTuple):
    """What a connected client has.

    Attributes:
        user_id: its user; empty = anonymous.
        subscriptions: channels, and the content filter of each; empty = none.
    """

    user_id: str
    subscriptions: frozenset[tuple[Channel, str]]


NOTHING: Final = Held("", frozenset())


@final
class Mirror:
    """Keeps a broker's clients in a registry.

    Args:
        registry: where.
        worker: the broker's name there; no other worker has it.
        transport: how its clients are connected: ``mqtt``.
    """

    def __init__(self, registry: Registry, *, worker: str, transport: str) -> None:
        self._registry = registry
        self._worker = worker
        self._transport = transport
        self._mine = f"{registry.keys.prefix}perdure:mirror:{worker}".encode()
        self._written: dict[str, Held] = {}
        """Connected clients, as the registry has them."""
        self._away: dict[str, None] = {}
        """Clients that are not connected and have not been forgotten, longest unasked first."""
        self._is_certain = False
        """``_written`` and ``_away`` are what the registry has."""

    def lost(self) -> None:
        """Something has failed: what was written is not known."""
        self._is_certain = False

    async def apply(
        self,
        live: Mapping[str, Held],
        is_kept: Callable[[str], Awaitable[bool]],
        *,
        now_us: int,
    ) -> int:
        """Write what has changed.

        Args:
            live: connected clients.
            is_kept: whether the session of one that is not connected is there.
            now_us: wall time.

        Returns:
            Clients that were written.

        Raises:
            StorageError: it failed; call ``lost``.
        """
        if not self._is_certain:
            await self._read(live, now_us)
        changed = [name for name, held in live.items() if self._written.get(name) != held]
        await _each(changed, lambda name: self._put(name, live[name], now_us))
        gone = [name for name in self._written if name not in live]
        await _each(gone, lambda name: self._disconnect(name, now_us))
        asked = [name for name in list(self._away)[:AWAY_AT_ONCE] if name not in live]
        await _each(asked, lambda name: self._look(name, is_kept))
        return len(changed) + len(gone)

    async def seen(self, *, now_us: int) -> None:
        """All that are connected are heard of: their keep-alive says so."""
        names = list(self._written)
        for first in range(0, len(names), AWAY_AT_ONCE):
            await self._registry.seen(names[first : first + AWAY_AT_ONCE], now_us=now_us)
            await asyncio.sleep(0)

    async def _read(self, live: Mapping[str, Held], now_us: int) -> None:
        """Bring what the registry has of clients that are there in line, and note the others."""
        self._written.clear()
        self._away = dict.fromkeys(await self._registry.members(self._mine))
        there = [name for name in live if name in self._away]
        await _each(there, lambda name: self._correct(name, live[name]))
        connected = await self._registry.members(self._registry.keys.of_worker(self._worker))
        devices = [DeviceTransport.parse(member) for member in connected]
        left = [device.device_id for device in devices if device.device_id not in live]
        await _each(left, lambda name: self._disconnect(name, now_us))
        self._is_certain = True

    async def _correct(self, name: str, held: Held) -> None:
        """Take out what a client has in the registry and does not subscribe to any more."""
        wanted = {
            (channel, filter_id_of(where) if where else "") for channel, where in held.subscriptions
        }
        for each in await self._registry.subscriptions(name):
            is_ours = each.transport == self._transport
            if is_ours and (each.channel, each.filter_id) not in wanted:
                await self._registry.unsubscribe(self._device(name), each.channel, each.filter_id)

    async def _put(self, name: str, held: Held, now_us: int) -> None:
        device = self._device(name)
        before = self._written.get(name)
        if before is None:
            # Noted before anything is written of it, so that a restart finds it.
            await self._do(Command(("SADD", self._mine, name), self._mine))
            await self._registry.connected(
                device, now_us=now_us, user_id=held.user_id, worker=self._worker
            )
            if name in self._away:
                await self._correct(name, held)
        earlier = before or NOTHING
        for channel, where in held.subscriptions - earlier.subscriptions:
            await self._registry.subscribe(device, channel, where=where)
        for channel, where in earlier.subscriptions - held.subscriptions:
            await self._registry.unsubscribe(device, channel, filter_id_of(where) if where else "")
        self._written[name] = held
        self._away.pop(name, None)

    async def _disconnect(self, name: str, now_us: int) -> None:
        await self._registry.disconnected(self._device(name), now_us=now_us, worker=self._worker)
        self._written.pop(name, None)
        self._away[name] = None

    async def _look(self, name: str, is_kept: Callable[[str], Awaitable[bool]]) -> None:
        self._away.pop(name, None)
        if await is_kept(name):
            self._away[name] = None  # asked again after all the others
            return
        for each in await self._registry.subscriptions(name):
            if each.transport == self._transport:
                await self._registry.unsubscribe(self._device(name), each.channel, each.filter_id)
        await self._do(Command(("SREM", self._mine, name), self._mine))

    async def _do(self, command: Command) -> None:
        check((await self._registry.client.execute([command]))[0])

    def _device(self, name: str) -> DeviceTransport:
        return DeviceTransport(name, self._transport)


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for all, some at the same time; the first failure ends it."""
    rest = list(items)
    for first in range(0, len(rest), AT_ONCE):
        await asyncio.gather(*(work(item) for item in rest[first : first + AT_ONCE]))
