"""A broker in this process with one forwarder, on a store that outlives it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from perdure.broker.auth.authenticate import AnonymousPolicy, EnhancedMethods
from perdure.broker.auth.authorize import AllowAll
from perdure.broker.broker import Broker
from perdure.clock import Clock, SystemClock
from perdure.config.schema import Config
from perdure.forwarders.keeping import FileKeeper
from perdure.forwarders.service import ForwarderService
from perdure.model import Message
from perdure.observe.metrics import Metrics
from perdure.server.scheduler import LoopScheduler
from perdure.storage.memory import MemoryDatabase
from tests.support.bounds import HANG_S

NAME = "under-test"


class LaterClock(Clock):
    """The machine's clock, and some more."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def now_us(self) -> int:
        return SystemClock().now_us() + self.ahead_us

    def monotonic_us(self) -> int:
        return SystemClock().monotonic_us() + self.ahead_us


class Bench:
    """A broker on a store in memory, which survives its process here, and one forwarder.

    Args:
        settings, more: of the forwarder.
        config: of the broker.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, config: Config | None = None, **more: Any
    ) -> None:
        self.database = MemoryDatabase()
        self.clock = LaterClock()
        self._config = config or Config()
        self.given = {**settings, "filter": ["t/#"], "start": "earliest", **more}
        self.start()

    def start(self) -> None:
        """A process begins."""
        self.errors: list[BaseException] = []
        self.scheduler = LoopScheduler(asyncio.get_running_loop(), self.errors.append)
        self.metrics = Metrics()
        self.broker = Broker(
            self._config,
            self.database,
            scheduler=self.scheduler,
            clock=self.clock,
            chance=random.Random(1),
            authenticator=AnonymousPolicy(),
            methods=EnhancedMethods(),
            authorizer=AllowAll(),
            metrics=self.metrics,
            log=structlog.get_logger(),
            version="1",
        )
        self.services = self.broker.services
        self.forwarders = ForwarderService(
            self.services,
            {},
            keeper=FileKeeper(None),
            origin="contract",
            log=structlog.get_logger(),
        )

    async def run(self) -> None:
        """Begin to forward."""
        await self.broker.start()
        await self.forwarders.start()
        await self.forwarders.add(NAME, self.given)

    async def close(self) -> None:
        """The end."""
        await self.forwarders.stop()
        self.broker.stop_taking(0)
        await self.broker.finish()
        await self.scheduler.close()
        assert self.errors == []

    async def publish(self, *messages: Message) -> None:
        """Messages enter the log."""
        core = self.services
        core.pipeline.now_us = core.clock.now_us()
        for message in messages:
            core.publish_path.take(message)
        core.pipeline.schedule()
        await core.pipeline.settled()
        await core.committer.sync_now()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened."""
        async with asyncio.timeout(HANG_S):
            while not happened():
                await asyncio.sleep(0.005)

    def forwarded(self) -> int:
        """Messages that this process has forwarded."""
        return self.forwarders.rows()[0].forwarded
