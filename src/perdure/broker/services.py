"""What the parts of one broker use of each other, wired once by ``broker.broker``.

A record, not an actor: it decides nothing.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, final

from perdure.broker.auth.authenticate import Authenticator, EnhancedMethods, Standing
from perdure.broker.auth.authorize import Authorizer
from perdure.broker.auth.flapping import Flapping
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.runtime.scheduler import Scheduler
from perdure.clock import SteadyClock
from perdure.config.schema import AuthConfig, LimitsConfig, MqttConfig, SessionConfig, StorageConfig
from perdure.errors import StorageError
from perdure.mqtt.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR
from perdure.observe.instruments import add
from perdure.observe.metrics import Metrics
from perdure.storage.contract import Database

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.commit.committer import Committer
    from perdure.broker.commit.pipeline import CommitPipeline
    from perdure.broker.connection.connect_handler import ConnectHandler
    from perdure.broker.connection.enhanced_auth import EnhancedAuth
    from perdure.broker.connection.inbound_frames import InboundFrames
    from perdure.broker.connection.refusal_log import RefusalLog
    from perdure.broker.connection.subscribe_handler import SubscribeHandler
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.catchup import CatchUp
    from perdure.broker.delivery.inbox import Inbox
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.pending_limits import PendingLimits
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.delivery.window_waiters import WindowWaiters
    from perdure.broker.dispatch.dispatcher import Dispatcher
    from perdure.broker.dispatch.router import Router
    from perdure.broker.monitor.clock_watch import ClockWatch
    from perdure.broker.monitor.sys_publisher import SysPublisher
    from perdure.broker.publish.path import PublishPath
    from perdure.broker.retention.retention import Retention
    from perdure.broker.runtime.turn_budget import TurnBudget
    from perdure.broker.runtime.unexpected_errors import UnexpectedErrors
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.lifecycle import SessionLifecycle
    from perdure.broker.sessions.reaper import Reaper
    from perdure.broker.shared.subscriptions import SharedSubscriptions


RETRY_US: Final = 1_000_000
"""How long work waits that found the store unreadable."""


HELD_UP_US: Final = 5_000_000
"""How long a session is held up before the log is told: one that is slow has moved on by then."""


@final
class Services:
    """The parts of one broker."""

    __slots__ = (
        "auth_config",
        "authenticator",
        "authorizer",
        "backfill",
        "ban_enforcer",
        "catchup",
        "clock",
        "clock_watch",
        "committer",
        "connect_handler",
        "database",
        "dispatcher",
        "enhanced_auth",
        "flapping",
        "guard",
        "held_up",
        "inbound_frames",
        "inbox",
        "limits_config",
        "listener_limits",
        "log",
        "methods",
        "metrics",
        "mqtt_config",
        "pending_limits",
        "pipeline",
        "publish_path",
        "random",
        "reaper",
        "refusal_log",
        "registry",
        "retention",
        "router",
        "scheduler",
        "session_config",
        "session_counts",
        "sessions",
        "shared_subscriptions",
        "standing",
        "storage_config",
        "subscribe_handler",
        "sys",
        "turn_budget",
        "unexpected_errors",
        "window_waiters",
    )

    unexpected_errors: UnexpectedErrors
    auth_config: AuthConfig
    authenticator: Authenticator
    authorizer: Authorizer
    ban_enforcer: BanEnforcer
    catchup: CatchUp
    clock: SteadyClock
    committer: Committer
    connect_handler: ConnectHandler
    database: Database
    dispatcher: Dispatcher
    enhanced_auth: EnhancedAuth
    backfill: Backfill
    flapping: Flapping
    guard: LoginGuard
    held_up: dict[str, tuple[int, int]]
    """Sessions that wait for one acknowledgement: its serial number, and since when (monotonic
    time; -1 = the log was told)."""
    inbox: Inbox
    pending_limits: PendingLimits
    limits_config: LimitsConfig
    listener_limits: dict[str, LimitsConfig]
    """What holds instead for the clients of a listener that has limits of its own, by name."""
    log: FilteringBoundLogger
    methods: EnhancedMethods
    metrics: Metrics
    mqtt_config: MqttConfig
    inbound_frames: InboundFrames
    publish_path: PublishPath
    random: random.Random
    reaper: Reaper
    refusal_log: RefusalLog
    registry: Registry
    retention: Retention
    window_waiters: WindowWaiters
    router: Router
    scheduler: Scheduler
    session_config: SessionConfig
    sessions: SessionLifecycle
    shared_subscriptions: SharedSubscriptions
    turn_budget: TurnBudget
    standing: Standing
    storage_config: StorageConfig
    subscribe_handler: SubscribeHandler
    sys: SysPublisher
    clock_watch: ClockWatch
    session_counts: SessionCounts
    pipeline: CommitPipeline

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
            except Exception as error:  # noqa: BLE001 - it is about one session or one group
                self.unexpected_errors.report(error, "background", task=name)
                return
            else:
                return
            gate = self.scheduler.gate()
            self.scheduler.call_later(RETRY_US, gate.open)
            await gate

    def session_failed(self, session: LiveSession, error: Exception, where: str) -> None:
        """A step of one session failed as nobody expected: its connection ends, others go on.

        The session takes nothing more that is dispatched, and its client is told in the next turn,
        since whoever found this may be going through the subscribers of a message.
        """
        connection = session.connection
        identity = session.identity
        self.unexpected_errors.report(
            error,
            where,
            client_id=session.client_id,
            username=identity.username,
            address=connection.peer.address,
            listener=connection.peer.listener,
        )
        self.scheduler.call_soon(functools.partial(self._close_failed, session))

    def _close_failed(self, session: LiveSession) -> None:
        try:
            if session.is_open:
                session.connection.close(IMPLEMENTATION_SPECIFIC_ERROR)
        except Exception as error:  # noqa: BLE001 - what could not be closed in order is cut
            self.unexpected_errors.report(error, "close", client_id=session.client_id)
            session.connection.abort()

    def read_failed(self, error: StorageError, **about: str) -> None:
        """Say that something could not be read; whoever wanted it tries again."""
        add(self.metrics.storage_errors, (error.code, str(error.retriable).lower()))
        self.log.error(
            "storage.read_failed", error=error.message, code=error.code, hint=error.hint, **about
        )

    def limits_of(self, listener: str) -> LimitsConfig:
        """The limits of a listener's clients."""
        return self.listener_limits.get(listener, self.limits_config)

    def gauges(self) -> None:
        """Bring the metrics that are states, not counts, up to date.

        While the store fails, those that describe it stay as they were: it may not be open.
        """
        metrics = self.metrics
        database = self.database
        metrics.retained_messages = database.retained_count
        metrics.retained_bytes = database.retained_bytes
        metrics.bans_temporary = len(self.ban_enforcer.temporary())
        metrics.shared_groups = len(self.shared_subscriptions.groups)
        metrics.inflight_messages = sum(
            session.outbound.inflight.count for session in self.registry.live.values()
        )
        metrics.pending_messages = sum(
            len(session.outbound.pending) for session in self.registry.live.values()
        )
        metrics.oldest_unacked_seconds = self._oldest_unacked_s()
        self._look_for_held_up()
        metrics.storage_backlog_messages = self.committer.backlog()
        metrics.clock_offset_lead_seconds = self.clock_watch.lead_us() // 1_000_000
        if not self.committer.writable:
            return
        generations = database.generations()
        metrics.storage_generations = len(generations)
        metrics.storage_messages = sum(info.message_count for info in generations)
        metrics.storage_bytes = sum(info.bytes for info in generations)
        metrics.storage_streams = sum(info.stream_count for info in generations)

    def _look_for_held_up(self) -> None:
        """Count the sessions that wait for one acknowledgement, and say which, once for each."""
        before = self.held_up
        now: dict[str, tuple[int, int]] = {}
        now_us = self.clock.monotonic_us()
        for session in self.registry.live.values():
            outbound = session.outbound
            if not outbound.is_held_up():
                continue
            head = outbound.oldest()
            assert head is not None
            serial, since_us = before.get(session.client_id, (0, 0))
            if serial != head.serial:
                since_us = now_us
            elif since_us >= 0 and now_us - since_us >= HELD_UP_US:
                since_us = -1
                self.log.warning(
                    "session.held_up",
                    client_id=session.client_id,
                    username=session.identity.username,
                    packet_id=head.packet_id,
                    age_s=max(0, self.clock.now_us() - head.offset) // 1_000_000,
                    behind=outbound.next_serial - 1 - head.serial,
                    hint="the client does not acknowledge this message; its topic: "
                    "perdure sessions show",
                )
            now[session.client_id] = head.serial, since_us
        self.held_up = now
        self.metrics.sessions_held_up = len(now)

    def _oldest_unacked_s(self) -> int:
        """Age of the oldest message in flight; offsets are times."""
        oldest = 0
        for session in self.registry.live.values():
            offset = session.outbound.oldest_offset()
            if offset and (not oldest or offset < oldest):
                oldest = offset
        return max(0, self.clock.wall_us() - oldest) // 1_000_000 if oldest else 0
