"""The broker's clients in a registry, as a part of the process's life.

Nothing of it is on the way of a message or a SUBSCRIBE: who is connected, with what, is looked at
every ``registry.interval_s``, a few sessions at a time. While Redis is away the broker goes on as
if there were no registry, and what has changed meanwhile is found by comparing when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, final

from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.services import Services
from perdure.clock import SystemClock
from perdure.config.schema import RegistryConfig
from perdure.errors import StorageError
from perdure.observe.logs import get_logger
from perdure.registry.channel import Channel, Keys
from perdure.registry.mirror import Held, Mirror
from perdure.registry.registry import Registry
from perdure.registry.topics import channel_of
from perdure.registry.upkeep import Upkeep

log = get_logger("registry")

SESSIONS_PER_STEP: Final = 500
"""Sessions that are looked at before the loop may do something else."""

SEEN_EVERY_S: Final = 60
"""How often it is noted that connected clients are there."""

SWEEP_EVERY_S: Final = 60
"""How often subscriptions whose time is over are taken out."""

STOP_S: Final = 5.0
"""How long a stop waits for Redis."""


@final
class RegistryPart:
    """Mirrors a broker's clients.

    Args:
        config: the section ``registry``, with a URL.
        services: the parts of the broker.
        worker: the broker's name.

    Raises:
        ConfigError: there cannot be so many partitions.
    """

    name: str = "registry"

    def __init__(self, config: RegistryConfig, services: Services, *, worker: str) -> None:
        self._config = config
        self._services = services
        self._worker = worker
        self._keys = Keys(config.partitions, config.prefix)
        self._clock = SystemClock()
        self._task: asyncio.Task[None] | None = None
        self._registry: Registry | None = None
        self._mirror: Mirror | None = None
        self._known: dict[str, tuple[LiveSession, int, Held]] = {}
        self._is_away = False
        self._seen_us = self._swept_us = 0

    async def start(self) -> None:
        """Begin; Redis need not be there yet."""
        self._task = asyncio.create_task(self._run(), name="registry")

    async def stop(self) -> None:
        """Say that this broker's clients are gone, if Redis is there."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if self._mirror is not None and not self._is_away:
            with contextlib.suppress(StorageError, TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._mirror.apply({}, self._is_kept, now_us=self._clock.now_us())
        if self._registry is not None:
            await self._registry.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except StorageError as error:
                if self._mirror is not None:
                    self._mirror.lost()
                if not self._is_away:
                    self._is_away = True
                    log.warning(
                        "registry.away",
                        error=error.message,
                        hint="clients are mirrored when Redis is back; messages are not held up",
                    )
            else:
                if self._is_away:
                    self._is_away = False
                    log.info("registry.back")
            await asyncio.sleep(self._config.interval_s)

    async def _step(self) -> None:
        """Write what has changed since the last one."""
        if self._registry is None or self._mirror is None:
            self._registry = await Registry.open(
                self._config.url, partitions=self._config.partitions, prefix=self._config.prefix
            )
            self._mirror = Mirror(
                self._registry, worker=self._worker, transport=self._config.transport
            )
        now_us = self._clock.now_us()
        await self._mirror.apply(await self._look(), self._is_kept, now_us=now_us)
        if now_us - self._seen_us >= SEEN_EVERY_S * 1_000_000:
            self._seen_us = now_us
            await self._mirror.seen(now_us=now_us)
        if now_us - self._swept_us >= SWEEP_EVERY_S * 1_000_000:
            self._swept_us = now_us
            await Upkeep(self._registry).sweep(now_us // 1_000_000)

    async def _look(self) -> dict[str, Held]:
        """Who is connected, with what."""
        known: dict[str, tuple[LiveSession, int, Held]] = {}
        found: dict[str, Held] = {}
        for number, session in enumerate(list(self._services.registry.live.values())):
            if not number % SESSIONS_PER_STEP:
                await asyncio.sleep(0)
            name, version = session.client_id, session.subs_version
            before = self._known.get(name)
            if before is None or before[0] is not session or before[1] != version:
                before = (session, version, _held(session))
            known[name] = before
            found[name] = before[2]
        self._known = known
        return found

    async def _is_kept(self, client_id: str) -> bool:
        live = self._services.registry.live.get(client_id)
        if live is not None:
            return live.durable
        return await self._services.database.open_session(client_id) is not None


def _held(session: LiveSession) -> Held:
    """What of a session other workers are to know: no shared subscription, for that is not one
    device's."""
    subscriptions: set[tuple[Channel, str]] = set()
    for sub in session.subs.values():
        channel = None if sub.group else channel_of(sub.filter)
        if channel is not None:
            subscriptions.add((channel, sub.where))
    return Held(session.record.username, frozenset(subscriptions))
