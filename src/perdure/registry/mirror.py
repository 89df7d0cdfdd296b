"""A broker's clients in the registry: kept like what the broker has, whatever happens between.

``apply`` is told who is connected with which subscriptions, and writes what is different from what
it has written before. After a failure, and at the start, it reads what the registry has of this
broker and goes by that: nothing is believed that may not have come to pass.

Who goes and leaves a durable session is disconnected and stays subscribed, for its messages are
kept; who leaves none is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar, final

from perdure.registry import writes
from perdure.registry.channel import Channel, DeviceTransport, filter_id_of
from perdure.registry.notes import NONE, Noted, Notes
from perdure.registry.registry import Registry
from perdure.registry.removal import take_out_all
from perdure.storage.redis import Command

AT_ONCE: Final = 64
"""Clients that are looked at in the registry at the same time."""

WRITTEN_AT_ONCE: Final = 128
"""Clients whose commands go out together: about 2 ms of the loop."""

COMPARED_AT_ONCE: Final = 2_000
"""Clients that are compared before the loop may do something else."""

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


def _noted(held: Held) -> Noted:
    return frozenset(
        (channel.key, filter_id_of(writes.checked_filter(where)) if where else "")
        for channel, where in held.subscriptions
    )


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
        self._notes = Notes(registry.client, registry.keys.prefix, worker)
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
        changed = await self._changed(live)
        await _in_pages(changed, lambda page: self._put(page, live, now_us))
        gone = await self._gone(live)
        await _in_pages(gone, lambda page: self._disconnect(page, now_us))
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
        self._away = dict.fromkeys(await self._notes.names())
        there = [name for name in live if name in self._away]
        await _in_pages(there, lambda page: self._correct(page, live))
        connected = await self._registry.members(self._registry.keys.of_worker(self._worker))
        devices = [DeviceTransport.parse(member) for member in connected]
        left = [device.device_id for device in devices if device.device_id not in live]
        await _in_pages(left, lambda page: self._disconnect(page, now_us))
        self._is_certain = True

    async def _correct(self, names: Sequence[str], live: Mapping[str, Held]) -> None:
        """Take out what clients have in the registry and do not subscribe to any more."""
        noted = await self._notes.read(names)
        await _each(noted, lambda name: self._drop(name, noted[name] - _noted(live[name])))

    async def _drop(self, name: str, ended: Noted) -> None:
        device, keys = self._device(name), self._registry.keys
        await take_out_all(
            self._registry,
            [
                (device, keys.subscription(Channel.parse(key), filter_id))
                for key, filter_id in ended
            ],
        )

    async def _changed(self, live: Mapping[str, Held]) -> list[str]:
        """Who is connected and not as the registry has it."""
        found, written = [], self._written
        for number, (name, held) in enumerate(live.items(), 1):
            before = written.get(name)
            if before is not held and before != held:
                found.append(name)
            if not number % COMPARED_AT_ONCE:
                await asyncio.sleep(0)
        return found

    async def _gone(self, live: Mapping[str, Held]) -> list[str]:
        found = []
        for number, name in enumerate(list(self._written), 1):
            if name not in live:
                found.append(name)
            if not number % COMPARED_AT_ONCE:
                await asyncio.sleep(0)
        return found

    async def _put(self, names: Sequence[str], live: Mapping[str, Held], now_us: int) -> None:
        """Write some clients as they are, in three round trips; more for those that were here."""
        noted: list[Command] = []
        before: list[Command] = []
        after: list[Command] = []
        keys = self._registry.keys
        notes = await self._notes.read([name for name in names if name in self._away])
        for name in names:
            earlier = self._written.get(name)
            if earlier is not None:
                notes[name] = _noted(earlier)
            else:
                before += writes.connected(
                    keys,
                    self._device(name),
                    now_us=now_us,
                    user_id=live[name].user_id,
                    worker=self._worker,
                )
            held = live[name].subscriptions - (earlier or NOTHING).subscriptions
            noted += self._notes.put(
                name, _noted(live[name]) | notes.get(name, NONE), notes.get(name)
            )
            for channel, where in held:
                text = writes.checked_filter(where) if where else ""
                first, second = writes.subscribed(
                    keys,
                    self._device(name),
                    channel,
                    filter_id=filter_id_of(text) if where else "",
                    filter_text=text,
                )
                before += first
                after += second
        # Noted before anything is written of it, so that a restart finds it.
        for step in (noted, before, after):
            await self._registry.write(step)
        ended = {name: rest for name, of in notes.items() if (rest := of - _noted(live[name]))}
        await _each(ended, lambda name: self._drop(name, ended[name]))
        settled: list[Command] = []
        for name in ended:
            now = _noted(live[name])
            settled += self._notes.put(name, now, now | notes[name])
        await self._registry.write(settled)
        for name in names:
            self._written[name] = live[name]
            self._away.pop(name, None)

    async def _disconnect(self, names: Sequence[str], now_us: int) -> None:
        commands: list[Command] = []
        for name in names:
            commands += writes.disconnected(
                self._registry.keys, self._device(name), now_us=now_us, worker=self._worker
            )
        await self._registry.write(commands)
        for name in names:
            self._written.pop(name, None)
            self._away[name] = None

    async def _look(self, name: str, is_kept: Callable[[str], Awaitable[bool]]) -> None:
        self._away.pop(name, None)
        if await is_kept(name):
            self._away[name] = None  # asked again after all the others
            return
        noted = (await self._notes.read([name])).get(name)
        if noted is not None:
            await self._drop(name, noted)
            await self._registry.write([self._notes.remove(name, noted)])

    def _device(self, name: str) -> DeviceTransport:
        return DeviceTransport(name, self._transport)


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for all, some at the same time; the first failure ends it."""
    rest = list(items)
    for first in range(0, len(rest), AT_ONCE):
        await asyncio.gather(*(work(item) for item in rest[first : first + AT_ONCE]))


async def _in_pages(items: Sequence[str], work: Callable[[Sequence[str]], Awaitable[None]]) -> None:
    """Do the work for some at once, page after page."""
    for first in range(0, len(items), WRITTEN_AT_ONCE):
        await work(items[first : first + WRITTEN_AT_ONCE])
