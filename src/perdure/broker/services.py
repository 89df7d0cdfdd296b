"""What the parts of one broker use of each other, wired once by ``broker.broker``.

A record, not an actor: it decides nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, final

from perdure.broker.auth.authenticate import Authenticator, EnhancedMethods
from perdure.broker.auth.authorize import Authorizer
from perdure.broker.scheduler import Scheduler
from perdure.clock import Clock
from perdure.config.schema import LimitsConfig, MqttConfig, SessionConfig, StorageConfig
from perdure.errors import StorageError
from perdure.observe.instruments import add
from perdure.observe.metrics import Metrics
from perdure.storage.contract import Database

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.banning import Banning
    from perdure.broker.catchup import CatchUp
    from perdure.broker.commit import Committer
    from perdure.broker.connecting import Connecting
    from perdure.broker.dispatch import Dispatcher
    from perdure.broker.enhanced import Enhanced
    from perdure.broker.feeds import Feeds
    from perdure.broker.inbox import Inbox
    from perdure.broker.limiter import Limiter
    from perdure.broker.publishing import Publishing
    from perdure.broker.reaper import Reaper
    from perdure.broker.registry import Registry
    from perdure.broker.retention import Retention
    from perdure.broker.room import Room
    from perdure.broker.router import Router
    from perdure.broker.sessions import Sessions
    from perdure.broker.shared import Shares
    from perdure.broker.subscribing import Subscribing
    from perdure.broker.sys_publisher import SysPublisher
    from perdure.broker.turn import Turn


RETRY_US: Final = 1_000_000
"""How long work waits that found the store unreadable."""


@final
class Services:
    """The parts of one broker."""

    __slots__ = (
        "authenticator",
        "authorizer",
        "banning",
        "catchup",
        "clock",
        "committer",
        "connecting",
        "database",
        "dispatcher",
        "enhanced",
        "feeds",
        "inbox",
        "limiter",
        "limits_config",
        "log",
        "methods",
        "metrics",
        "mqtt_config",
        "publishing",
        "random",
        "reaper",
        "registry",
        "retention",
        "room",
        "router",
        "scheduler",
        "session_config",
        "sessions",
        "shares",
        "storage_config",
        "subscribing",
        "sys",
        "turn",
    )

    authenticator: Authenticator
    authorizer: Authorizer
    banning: Banning
    catchup: CatchUp
    clock: Clock
    committer: Committer
    connecting: Connecting
    database: Database
    dispatcher: Dispatcher
    enhanced: Enhanced
    feeds: Feeds
    inbox: Inbox
    limiter: Limiter
    limits_config: LimitsConfig
    log: FilteringBoundLogger
    methods: EnhancedMethods
    metrics: Metrics
    mqtt_config: MqttConfig
    publishing: Publishing
    random: random.Random
    reaper: Reaper
    registry: Registry
    retention: Retention
    room: Room
    router: Router
    scheduler: Scheduler
    session_config: SessionConfig
    sessions: Sessions
    shares: Shares
    storage_config: StorageConfig
    subscribing: Subscribing
    sys: SysPublisher
    turn: Turn

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
        """Run work of the broker itself as a task, again and again while the store fails it.

        Args:
            work: makes the coroutine; harmless to begin again.
            name: for the log.
        """
        self.scheduler.spawn(self._attempt(work, name), name=name)

    async def _attempt(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                await work()
            except StorageError as error:
                self.read_failed(error, task=name)
            else:
                return
            gate = self.scheduler.gate()
            self.scheduler.call_later(RETRY_US, gate.open)
            await gate

    def read_failed(self, error: StorageError, **about: str) -> None:
        """Say that something could not be read; whoever wanted it tries again."""
        add(self.metrics.storage_errors, (error.code, str(error.retriable).lower()))
        self.log.error(
            "storage.read_failed", error=error.message, code=error.code, hint=error.hint, **about
        )

    def gauges(self) -> None:
        """Bring the metrics that are states, not counts, up to date.

        While the store fails, those that describe it stay as they were: it may not be open.
        """
        metrics = self.metrics
        database = self.database
        metrics.retained_messages = database.retained_count
        metrics.shared_groups = len(self.shares.groups)
        metrics.inflight_messages = sum(
            session.outbound.inflight.count for session in self.registry.live.values()
        )
        metrics.pending_messages = sum(
            len(session.outbound.pending) for session in self.registry.live.values()
        )
        metrics.oldest_unacked_seconds = self._oldest_unacked_s()
        metrics.storage_backlog_messages = self.committer.backlog()
        if not self.committer.writable:
            return
        generations = database.generations()
        metrics.storage_generations = len(generations)
        metrics.storage_messages = sum(info.message_count for info in generations)
        metrics.storage_bytes = sum(info.bytes for info in generations)
        metrics.storage_streams = sum(info.stream_count for info in generations)

    def _oldest_unacked_s(self) -> int:
        """Age of the oldest message in flight; offsets are times."""
        oldest = 0
        for session in self.registry.live.values():
            offset = session.outbound.oldest_offset()
            if offset and (not oldest or offset < oldest):
                oldest = offset
        return max(0, self.clock.now_us() - oldest) // 1_000_000 if oldest else 0
