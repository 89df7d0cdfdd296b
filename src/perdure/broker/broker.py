"""The broker: its parts wired together, started and stopped.

What the parts decide is in their own modules; here is only who knows whom, in which order they
start, and what happens when the store fails.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final

from perdure.broker.assembly import wire, wire_cluster
from perdure.broker.auth.authenticate import AllStand, Authenticator, EnhancedMethods, Standing
from perdure.broker.auth.authorize import Authorizer
from perdure.broker.auth.bans import BanList
from perdure.broker.auth.flapping import Flapping
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.commit.committer import Committer
from perdure.broker.commit.pipeline import CommitPipeline
from perdure.broker.commit.waiters import LEVEL_FSYNC, LEVEL_MEMORY, LEVELS
from perdure.broker.connection.connection import Connection
from perdure.broker.dispatch.dispatcher import Dispatcher
from perdure.broker.dispatch.router import Router
from perdure.broker.monitor.clock_watch import ClockMemory, ClockWatch, kept_clock
from perdure.broker.runtime.scheduler import Scheduler
from perdure.broker.runtime.unexpected_errors import UnexpectedErrors
from perdure.broker.services import Services
from perdure.clock import Clock, SteadyClock
from perdure.config.schema import Config
from perdure.errors import (
    Fenced,
    FormatTooNew,
    LogShorter,
    LogTruncated,
    NodeNameTaken,
    StorageError,
    StorageLocked,
    StorageUnavailable,
)
from perdure.mqtt.reason_codes import (
    SERVER_SHUTTING_DOWN,
    SESSION_TAKEN_OVER,
    UNSPECIFIED_ERROR,
)
from perdure.observe.metrics import Metrics
from perdure.observe.sys_topics import SysTopics
from perdure.storage.contract import Database

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from perdure.broker.runtime.stream import ByteStream, PeerInfo

RECOVERY_INTERVAL_US: Final = 1_000_000
"""How often a failed store is asked whether it is there again."""

_GONE: Final = (Fenced, FormatTooNew, LogShorter, LogTruncated, NodeNameTaken, StorageLocked)
"""A store that may be another process's by now does not come back to this one."""


@final
class Broker:
    """One broker on one database.

    Args:
        config: the sections ``mqtt``, ``session``, ``storage``, ``retention``, ``limits``,
            ``subscriptions``, ``log`` and ``sys`` are used.
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
        clock_memory: hands the broker's time to the next process; None = nothing does.
        standing: says who is still there after users or rules have changed; None = all are.
        guard: keeps out who guesses passwords; None = one of its own.
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
        clock_memory: ClockMemory | None = None,
        standing: Standing | None = None,
        guard: LoginGuard | None = None,
    ) -> None:
        level = LEVELS[config.storage.durability]
        services = Services()
        self.services: Services = services
        services.auth_config = config.auth
        services.origin = ""
        services.clients_declare = None
        services.past = None
        services.authenticator = authenticator
        services.methods = methods
        services.standing = standing or AllStand()
        services.guard = guard or LoginGuard(config.auth)
        services.flapping = Flapping()
        services.listener_limits = {}
        services.authorizer = authorizer
        kept = kept_clock(clock_memory, database)
        services.clock = SteadyClock(clock, kept)
        services.clock_watch = ClockWatch(services, clock_memory, kept)
        services.database = database
        services.peers = peers = database.capabilities.peers
        services.log = log
        services.metrics = metrics
        services.mqtt_config = config.mqtt
        services.session_config = config.session
        services.storage_config = config.storage
        services.limits_config = config.limits
        services.random = chance
        services.scheduler = scheduler
        services.unexpected_errors = UnexpectedErrors(metrics, log, clock)
        services.committer = Committer(
            database,
            scheduler,
            clock,
            metrics,
            interval_us=(
                config.cluster.commit_interval_us
                if database.capabilities.sequences_late
                else config.storage.commit_interval_us
            ),
            messages_max=config.storage.commit_messages_max,
        )
        services.pipeline = CommitPipeline(
            scheduler,
            services.committer,
            services.clock,
            metrics,
            commit_queue_max=config.storage.commit_queue_max,
        )
        services.cursors = services.pipeline.cursors
        services.turn_budget = services.pipeline.turn_budget
        services.router = Router()
        services.stored_filters = {}
        services.dispatcher = Dispatcher(
            services.router,
            metrics,
            offset=database.last_offset,
            # What a log elsewhere gives back is safe already.
            gate_qos2=peers is None
            and (
                level == LEVEL_FSYNC
                or _has_fsync_listener(config)
                or (not database.capabilities.keeps_written and level != LEVEL_MEMORY)
            ),
            is_alone=peers is None,
        )
        services.pipeline.dispatcher = services.dispatcher
        wire(
            services,
            config,
            level=level,
            bans=bans or BanList(),
            topics=SysTopics(version, started_us=clock.monotonic_us()),
        )
        services.pipeline.on_storage_failed.append(self)
        services.pipeline.on_refused = self._refused
        self._cluster = None if peers is None else wire_cluster(services, peers, lost=self._refused)
        self._level = level
        self._recovering: bool = False
        self._recovery_error: str = ""
        """What a recovery failed with last."""
        self.stopping: bool = False

    async def start(self) -> None:
        """Take up what the last process left; connections may come when this returns."""
        services = self.services
        services.clock_watch.start()
        services.pipeline.now_us = services.clock.now_us()
        if self._cluster is None:
            await services.reaper.cut_connections()
        else:
            await self._cluster.start()
        services.ban_enforcer.start()  # before wills that are due are published
        await services.filters.load()
        await services.notices.load()
        await services.shared_subscriptions.load()
        await services.reaper.run()
        await services.retention.look_at_disk()
        services.retention.start()
        services.sys.start()
        if services.database.capabilities.may_be_taken:
            self._watch_store()

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
        self.services.clock_watch.stop()
        self.services.reaper.stop()
        if self._cluster is not None:
            self._cluster.stop()
        self.services.retention.stop()
        self.services.ban_enforcer.stop()
        self.services.login_expiry.stop()
        self.services.sys.stop()
        self.services.refusal_log.close()
        for session in list(self.services.registry.live.values()):
            session.connection.close(reason_code)

    async def finish(self) -> None:
        """Commit what is still open; nothing may come after this."""
        services = self.services
        await services.pipeline.committed()
        if services.committer.writable:
            await services.committer.sync_now()

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The store refuses writes: say so, and ask it until it is there again.

        Sessions whose memory may be ahead of the store are let go; they come back to what the
        store has. After a refused write those are the ones with backfills and shares, which move in
        one batch with what they give; after a failed sync it is every durable one.
        """
        services = self.services
        services.log.error("storage.failed", error=error.message, code=error.code, hint=error.hint)
        if self._is_fenced(error):
            return
        # Clients of a cluster find another node.
        reason = UNSPECIFIED_ERROR if services.peers is None else SERVER_SHUTTING_DOWN
        for session in list(services.registry.live.values()):
            if session.backfilling or session.groups or (in_doubt and session.durable):
                session.connection.storage_lost(reason)
        if not self._recovering:
            self._recovering = True
            self.services.scheduler.call_later(RECOVERY_INTERVAL_US, self._try_recovery)

    def _refused(self, client_id: str, epoch: int) -> None:
        """A later owner has a session than the one of this epoch: let go of it."""
        session = self.services.registry.live.get(client_id)
        if session is None or session.record.epoch > epoch:
            return
        self.services.log.warning("session.fenced", client_id=client_id)
        session.taken_over = session.fenced = True
        # What its groups gave it is in its private stream, which is another owner's now.
        session.group_runs = []
        session.given = {}
        why = "the session has another owner"
        session.connection.disconnect(SESSION_TAKEN_OVER, why, send_will=False)

    def _is_fenced(self, error: StorageError) -> bool:
        """End the process if another broker has the store, or a cluster's log is not for this node
        any more: it is not coming back to this one."""
        if not self.services.database.capabilities.may_be_taken:
            return False
        if not isinstance(error, _GONE):
            return False
        # Raised in a task of the broker's: that ends the process with the error's exit code.
        self.services.scheduler.spawn(_raise(error), name="fenced")
        return True

    def _watch_store(self) -> None:
        """The store may be lost, or taken by another broker, while nothing is written."""
        if self.stopping:
            return
        services = self.services
        if services.database.has_failed and services.committer.writable:
            services.committer.lost(StorageUnavailable("the server takes no writes"))
        services.scheduler.call_later(RECOVERY_INTERVAL_US, self._watch_store)

    def _try_recovery(self) -> None:
        if not self.stopping:
            self.services.scheduler.spawn(self._recover(), name="recovery")

    async def _recover(self) -> None:
        services = self.services
        try:
            recovered = await services.database.recover()
            if recovered:
                await services.shared_subscriptions.reload()
                # Connections that went meanwhile could not write so: their sessions are offline
                # and their wills fall due from now on.
                if self._cluster is None:
                    await services.reaper.cut_connections()
                else:
                    await self._cluster.start()
        except StorageError as error:
            if error.message != self._recovery_error:
                # Asked once a second: the same answer is told once.
                self._recovery_error = error.message
                services.log.error(
                    "storage.failed", error=error.message, code=error.code, hint=error.hint
                )
            if self._is_fenced(error):
                return
            recovered = False
        if not recovered:
            services.scheduler.call_later(RECOVERY_INTERVAL_US, self._try_recovery)
            return
        self._recovering = False
        self._recovery_error = ""
        services.log.info("storage.recovered")
        services.committer.recovered()
        # What was in doubt is in the log or it is not: everybody reads it from there.
        fence = services.dispatcher.offset
        services.dispatcher.reset(services.database.last_offset)
        for session in list(services.registry.live.values()):
            session.inbox_queued = 0
            session.given = {}
            session.outbound.dirty = True
            session.fall_behind(fence)
            session.moved()
            services.window_waiters.notify(session)
        services.pipeline.schedule()
        services.scheduler.spawn(services.reaper.run(), name="reaper")


async def _raise(error: StorageError) -> None:
    hint = error.hint or "this one ends: only one broker may have the server"
    raise type(error)(error.message, hint=hint) from error


def _has_fsync_listener(config: Config) -> bool:
    """Whether a listener promises more than the broker does by default."""
    listeners = config.listeners
    kinds = (listeners.tcp, listeners.tls, listeners.ws, listeners.wss)
    return any(section.durability == "fsync" for kind in kinds for section in kind)
