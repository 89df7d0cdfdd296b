"""What every part of a broker stands on, wired once by ``broker.broker``: the commit pipeline with
the dispatch, the store, the clock, who is let in, and the settings.

A record, not an actor: it decides nothing. Parts above get it in their constructor, and what else
they need by name; it knows none of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from perdure.broker.auth.authenticate import Authenticator, EnhancedMethods, Standing
from perdure.broker.auth.authorize import Authorizer, Identity
from perdure.broker.auth.flapping import Flapping
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.commit.committer import Committer
from perdure.broker.commit.cursors import CursorWriter
from perdure.broker.commit.pipeline import CommitPipeline
from perdure.broker.dispatch.dispatcher import Dispatcher
from perdure.broker.dispatch.router import Router
from perdure.broker.runtime.scheduler import Scheduler
from perdure.broker.runtime.turn_budget import TurnBudget
from perdure.broker.runtime.unexpected_errors import UnexpectedErrors
from perdure.clock import SteadyClock
from perdure.config.schema import AuthConfig, LimitsConfig, MqttConfig, SessionConfig, StorageConfig
from perdure.content.stored import StoredFilter
from perdure.errors import StorageError
from perdure.observe.instruments import add
from perdure.observe.metrics import Metrics
from perdure.storage.contract import Database, ReadResult
from perdure.storage.peers import Peers

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

RETRY_US: Final = 1_000_000
"""How long work waits that found the store unreadable."""


class ClientDeclarations(Protocol):
    """Takes what clients declare in the user properties of CONNECT."""

    def declared(
        self, identity: Identity, client_id: str, pairs: tuple[tuple[str, str], ...]
    ) -> None:
        """A client that was let in has declared something, perhaps.

        Args:
            identity: of the client.
            client_id: of the client.
            pairs: user properties of its CONNECT, at least one.
        """
        ...


class Past(Protocol):
    """What the log has dropped, and an archive has: read in a process of its own."""

    @property
    def is_full(self) -> bool:
        """Whether as many wait for a page as may; a new subscription may not."""
        ...

    @property
    def problem(self) -> str:
        """Why there are no pages now, for people; empty = there are, or nobody has asked."""
        ...

    @property
    def waiting_s(self) -> float:
        """How long the one that waits longest for its page has; 0 = nobody waits."""
        ...

    def has(self, topic_filter: str, until_offset: int, *, last_offset: int) -> bool:
        """Whether the archive is known to have all that a filter matches, up to an offset.

        Args:
            topic_filter: what is wanted.
            until_offset: of the log, inclusive.
            last_offset: the highest of the log: what tells of a higher one is about another log.
        """
        ...

    async def read(
        self,
        client_id: str,
        topic_filter: str,
        *,
        after_offset: int,
        until_offset: int,
        is_wanted: Callable[[], bool],
    ) -> ReadResult | None:
        """A page of the archive; one that is away is waited for.

        Args:
            client_id: for whom; clients take turns.
            topic_filter: what is wanted.
            after_offset, until_offset: exclusive and inclusive.
            is_wanted: whether the client is still there.

        Returns:
            The page, as ``Database.read`` returns those of the log, with a limit of its own; None
            = nobody wants it any more.
        """
        ...


class BrokerCore:
    """The parts below all others."""

    __slots__ = (
        "auth_config",
        "authenticator",
        "authorizer",
        "clients_declare",
        "clock",
        "committer",
        "cursors",
        "database",
        "dispatcher",
        "flapping",
        "guard",
        "limits_config",
        "listener_limits",
        "log",
        "methods",
        "metrics",
        "mqtt_config",
        "origin",
        "past",
        "peers",
        "pipeline",
        "random",
        "router",
        "scheduler",
        "session_config",
        "standing",
        "storage_config",
        "stored_filters",
        "turn_budget",
        "unexpected_errors",
    )

    auth_config: AuthConfig
    authenticator: Authenticator
    authorizer: Authorizer
    clients_declare: ClientDeclarations | None
    """Takes what clients declare in CONNECT; None = they declare nothing."""
    clock: SteadyClock
    committer: Committer
    cursors: CursorWriter
    database: Database
    dispatcher: Dispatcher
    flapping: Flapping
    guard: LoginGuard
    limits_config: LimitsConfig
    listener_limits: dict[str, LimitsConfig]
    """What holds instead for the clients of a listener that has limits of its own, by name."""
    log: FilteringBoundLogger
    methods: EnhancedMethods
    metrics: Metrics
    mqtt_config: MqttConfig
    origin: str
    """Who this broker is, for bridges; empty = nobody."""
    past: Past | None
    """What the log has dropped; None = it is gone."""
    peers: Peers | None
    """The other nodes on the log; None = there are none."""
    pipeline: CommitPipeline
    random: random.Random
    router: Router
    scheduler: Scheduler
    session_config: SessionConfig
    standing: Standing
    stored_filters: dict[str, StoredFilter]
    """By id (``sessions.stored_filters``)."""
    storage_config: StorageConfig
    turn_budget: TurnBudget
    unexpected_errors: UnexpectedErrors

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
            await self._pause()

    async def until_writable(self) -> None:
        """Wait until the store takes writes."""
        while not self.committer.writable:
            await self._pause()

    async def _pause(self) -> None:
        gate = self.scheduler.gate()
        self.scheduler.call_later(RETRY_US, gate.open)
        await gate

    def read_failed(self, error: StorageError, **about: str) -> None:
        """Say that something could not be read; whoever wanted it tries again."""
        add(self.metrics.storage_errors, (error.code, str(error.retriable).lower()))
        self.log.error(
            "storage.read_failed", error=error.message, code=error.code, hint=error.hint, **about
        )

    def seam(self) -> int:
        """The offset up to which replays are given what the archive has; 0 = there is none, or the
        log has all."""
        return 0 if self.past is None else self.before_log()

    def before_log(self) -> int:
        """The offset before the first that the log has."""
        return self.database.since_offset - 1

    def limits_of(self, listener: str) -> LimitsConfig:
        """The limits of a listener's clients."""
        return self.listener_limits.get(listener, self.limits_config)

    async def yield_to_loop(self) -> None:
        """Let a turn pass, so that long work does not hold up everything else."""
        gate = self.scheduler.gate()
        self.scheduler.call_soon(gate.open)
        await gate
