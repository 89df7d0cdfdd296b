"""The broker: its parts wired together, started and stopped.

What the parts decide is in their own modules; here is only who knows whom, in which order they
start, and what happens when the store fails.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final

from perdure.broker.auth.authenticate import Authenticator, EnhancedMethods
from perdure.broker.auth.authorize import Authorizer
from perdure.broker.auth.bans import BanList
from perdure.broker.banning import Banning
from perdure.broker.catchup import CatchUp
from perdure.broker.commit import LEVEL_FSYNC, LEVEL_MEMORY, LEVELS, Committer
from perdure.broker.connecting import Connecting
from perdure.broker.connection import Connection
from perdure.broker.dispatch import Dispatcher
from perdure.broker.enhanced import Enhanced
from perdure.broker.feeds import Feeds
from perdure.broker.inbox import Inbox
from perdure.broker.limiter import Limiter
from perdure.broker.publishing import Publishing
from perdure.broker.reaper import Reaper, cut_connections
from perdure.broker.registry import Registry
from perdure.broker.retention import Retention
from perdure.broker.room import Room
from perdure.broker.router import Router
from perdure.broker.scheduler import Scheduler
from perdure.broker.services import Services
from perdure.broker.sessions import Sessions
from perdure.broker.shared import Shares
from perdure.broker.subscribing import Subscribing
from perdure.broker.sys_publisher import SysPublisher
from perdure.broker.turn import Turn
from perdure.clock import Clock
from perdure.config.schema import Config
from perdure.errors import StorageError
from perdure.observe.metrics import Metrics
from perdure.observe.sys_topics import SysTopics
from perdure.storage.contract import Database

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.stream import ByteStream, PeerInfo

UNSPECIFIED_ERROR: Final = 0x80
RECOVERY_INTERVAL_US: Final = 1_000_000
"""How often a failed store is asked whether it is there again."""


@final
class Broker:
    """One broker on one database.

    Args:
        config: the sections ``mqtt``, ``session``, ``storage``, ``retention``, ``limits``,
            ``shared`` and ``sys`` are used.
        database: the durable state; the caller opens and closes it.
        scheduler: turns, timers and tasks.
        clock: wall and monotonic time.
        chance: for client ids and shared subscriptions.
        authenticator: decides on CONNECT.
        methods: enhanced authentication.
        authorizer: decides on topics.
        metrics: what is counted.
        log: where events go.
        version: for ``$SYS``.
        bans: in force from the start.
    """

    def __init__(
        self,
        config: Config,
        database: Database,
        *,
        scheduler: Scheduler,
        clock: Clock,
        chance: random.Random,
        authenticator: Authenticator,
        methods: EnhancedMethods,
        authorizer: Authorizer,
        metrics: Metrics,
        log: FilteringBoundLogger,
        version: str,
        bans: BanList | None = None,
    ) -> None:
        level = LEVELS[config.storage.durability]
        services = Services()
        self.services: Services = services
        services.authenticator = authenticator
        services.methods = methods
        services.authorizer = authorizer
        services.clock = clock
        services.database = database
        services.log = log
        services.metrics = metrics
        services.mqtt_config = config.mqtt
        services.session_config = config.session
        services.storage_config = config.storage
        services.limits_config = config.limits
        services.random = chance
        services.scheduler = scheduler
        services.committer = Committer(
            database,
            scheduler,
            clock,
            metrics,
            interval_us=config.storage.commit_interval_us,
            messages_max=config.storage.commit_messages_max,
        )
        services.turn = Turn(
            scheduler, services.committer, commit_queue_max=config.storage.commit_queue_max
        )
        services.router = Router()
        services.dispatcher = Dispatcher(
            services.router,
            metrics,
            offset=database.last_offset,
            gate_qos2=level == LEVEL_FSYNC
            or _has_fsync_listener(config)
            or (database.server is not None and level != LEVEL_MEMORY),
        )
        services.turn.dispatcher = services.dispatcher
        services.registry = Registry(scheduler)
        services.room = Room(scheduler)
        services.inbox = Inbox(services)
        services.limiter = Limiter(services)
        services.catchup = CatchUp(services)
        services.feeds = Feeds(services)
        services.shares = Shares(services, config.shared)
        services.sessions = Sessions(services)
        services.banning = Banning(services, bans or BanList())
        services.connecting = Connecting(services, level=level)
        services.enhanced = Enhanced(services)
        services.subscribing = Subscribing(services, level=level)
        services.publishing = Publishing(
            services, record=config.storage.record, record_qos0=config.storage.record_qos0
        )
        services.reaper = Reaper(services)
        services.retention = Retention(services, config.retention)
        services.sys = SysPublisher(
            services,
            SysTopics(version, started_us=clock.monotonic_us()),
            interval_s=config.sys.interval_s,
        )
        services.turn.on_storage_failed.append(self)
        self._level = level
        self._recovering: bool = False
        self.stopping: bool = False

    async def start(self) -> None:
        """Take up what the last process left; connections may come when this returns."""
        services = self.services
        services.turn.now_us = services.clock.now_us()
        services.metrics.sessions_offline = await cut_connections(services)
        await services.shares.load()
        await services.reaper.run()
        services.retention.start()
        services.banning.start()
        services.sys.start()

    def connection(self, stream: ByteStream, peer: PeerInfo, *, durability: str = "") -> Connection:
        """A new connection on a transport.

        Args:
            stream: the transport.
            peer: who is there.
            durability: the listener's own level; empty = the broker's.
        """
        level = LEVELS[durability] if durability else self._level
        return Connection(self.services, stream, peer, level=level)

    def stop_taking(self, reason_code: int) -> None:
        """Take leave of every client with a reason code (0x8B: server shutting down)."""
        self.stopping = True
        self.services.reaper.stop()
        self.services.retention.stop()
        self.services.banning.stop()
        self.services.sys.stop()
        for session in list(self.services.registry.live.values()):
            session.holder.close(reason_code)

    async def finish(self) -> None:
        """Commit what is still open; nothing may come after this."""
        services = self.services
        services.turn.run()
        if services.committer.writable:
            await services.committer.sync_now()

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The store refuses writes: say so, and ask it until it is there again.

        Sessions whose memory may be ahead of the store are let go; they come back to what the
        store has. After a refused write those are the ones with feeds and shares, which move in
        one batch with what they give; after a failed sync it is every durable one.
        """
        services = self.services
        services.log.error("storage.failed", error=error.message, code=error.code, hint=error.hint)
        for session in list(services.registry.live.values()):
            if session.feeding or session.groups or (in_doubt and session.durable):
                session.holder.storage_lost(UNSPECIFIED_ERROR)
        if not self._recovering:
            self._recovering = True
            self.services.scheduler.call_later(RECOVERY_INTERVAL_US, self._try_recovery)

    def _try_recovery(self) -> None:
        if not self.stopping:
            self.services.scheduler.spawn(self._recover(), name="recovery")

    async def _recover(self) -> None:
        services = self.services
        try:
            recovered = await services.database.recover()
            if recovered:
                await services.shares.reload()
                # Connections that went meanwhile could not write so: their sessions are offline
                # and their wills fall due from now on.
                await cut_connections(services)
        except StorageError as error:
            services.log.error("storage.failed", error=error.message, code=error.code)
            recovered = False
        if not recovered:
            services.scheduler.call_later(RECOVERY_INTERVAL_US, self._try_recovery)
            return
        self._recovering = False
        services.log.info("storage.recovered")
        services.committer.recovered()
        # What was in doubt is in the log or it is not: everybody reads it from there.
        fence = services.dispatcher.offset
        services.dispatcher.reset(services.database.last_offset)
        for session in list(services.registry.live.values()):
            session.addressed = 0
            session.outbound.dirty = True
            session.fall_behind(fence)
            session.moved()
            services.room.made(session)
        services.turn.schedule()
        services.scheduler.spawn(services.reaper.run(), name="reaper")


def _has_fsync_listener(config: Config) -> bool:
    """Whether a listener promises more than the broker does by default."""
    listeners = config.listeners
    kinds = (listeners.tcp, listeners.tls, listeners.ws, listeners.wss)
    return any(section.durability == "fsync" for kind in kinds for section in kind)
