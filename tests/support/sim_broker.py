"""A simulated broker: virtual time, network and store, and a process that can die.

Unit tests of the broker and whole simulations share it. Nothing in it needs an event loop, and
with one seed everything in it happens again in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, cast, final

import structlog
from structlog.testing import CapturingLogger

from perdure.broker.auth.authenticate import (
    AnonymousPolicy,
    Authenticator,
    EnhancedMethods,
    Standing,
)
from perdure.broker.auth.authorize import AllowAll, Authorizer
from perdure.broker.auth.bans import BanList
from perdure.broker.broker import Broker
from perdure.broker.commit.admission import Admission
from perdure.broker.commit.pacer import CommitPacer
from perdure.config.schema import Config, SysConfig
from perdure.errors import StorageError
from perdure.observe.metrics import Metrics
from tests.support.clock import KeptClock, VirtualClock
from tests.support.network import PEER, Network, NetworkProfile
from tests.support.scheduler import VirtualLoop, VirtualScheduler
from tests.support.storage import FaultyDatabase, ProcessDied

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

QUIET = Config(sys=SysConfig(interval_s=0))
"""Defaults without ``$SYS`` topics."""

PACE_STEP_US = 5_000
"""How often a pace is kept from what it has learned."""


LOG_DELAYS_US = (0, 300, 2_000, 15_000)
"""How long a log that is elsewhere takes to give a batch back."""


@final
class SimBroker:
    """A clock, a network, a store and at most one broker process on them.

    Args:
        seed: of everything that is chance.
        config: of each broker process; may be replaced between two of them.
        store: what the first broker opens.
        network_profile: delays and fragmentation of the network.
        durability: of the listener; empty = the broker's.
        authenticator, authorizer, standing: of each broker process.
        loop: of several on one clock; None = its own.

    Attributes:
        events: what the brokers logged: event and values.
        deaths: brokers that died in a write.
        power_cut_count: times that what was not synced was lost.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        config: Config = QUIET,
        store: FaultyDatabase | None = None,
        network_profile: NetworkProfile | None = None,
        durability: str = "",
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
        standing: Standing | None = None,
        loop: VirtualLoop | None = None,
    ) -> None:
        self.chance = random.Random(seed)
        self.loop = loop or VirtualLoop(VirtualClock())
        self.clock = self.loop.clock
        self.kept_clock = KeptClock()
        self.network = Network(self.loop, random.Random(seed + 1), network_profile)
        self.store = store or FaultyDatabase()
        self.config = config
        self.durability = durability
        self.authenticator = authenticator or AnonymousPolicy("always")
        self.authorizer = authorizer or AllowAll()
        self.standing = standing
        self.broker: Broker | None = None
        self.scheduler: VirtualScheduler | None = None
        self.events: list[tuple[str, dict[str, object]]] = []
        self.deaths = 0
        self.power_cut_count = 0
        self.blocking_us = (100, 3_000)
        """Least and most time that a sync takes."""
        self.bans: BanList | None = None
        """In force when a broker process starts."""
        self.suspends = False
        """Reads of the store wait now and then, as a server's would."""
        self.rests = False
        """Commits are spaced and the broker rests between them, whatever its pace has learned."""
        self.limits = False
        """Turns take few messages, as if sessions were behind, and publishers queue."""
        self.power_cuts = True
        """A broker that dies in a write may take the machine with it."""

    @property
    def live(self) -> Broker:
        """The broker, which must be there."""
        assert self.broker is not None
        return self.broker

    # The process.

    def start(self) -> None:
        """Start a broker on the store; it may die, or find a store that does not work."""
        assert self.broker is None
        scheduler = VirtualScheduler(
            self.loop,
            random.Random(self.chance.getrandbits(32)),
            blocking_us=self.blocking_us,
        )
        broker = Broker(
            self.config,
            self.store,
            scheduler=scheduler,
            clock=self.clock,
            chance=random.Random(self.chance.getrandbits(32)),
            authenticator=self.authenticator,
            methods=EnhancedMethods(),
            authorizer=self.authorizer,
            metrics=Metrics(),
            log=self._log(),
            version="test",
            clock_memory=self.kept_clock,
            standing=self.standing,
            bans=self.bans,
        )
        self.broker = broker
        self.scheduler = scheduler
        self.store.use_loop(self._later)
        if self.suspends:
            self.store.pause = lambda: self._pause(scheduler)
        try:
            scheduler.run(broker.start())
        except ProcessDied:
            self._died()
            return
        except StorageError:
            self.kill()
            return
        if self.rests:
            self._keep_lingering(scheduler, broker.services.committer.pacer)
        if self.limits:
            self._keep_limiting(scheduler, broker.services.pipeline.admission)
        self.network.listen(lambda wire: broker.connection(wire, PEER, durability=self.durability))

    def _later(self, go_on: Callable[[], None]) -> None:
        self.loop.call_later(self.chance.choice(LOG_DELAYS_US), go_on)

    def _keep_lingering(self, scheduler: VirtualScheduler, pacer: CommitPacer) -> None:
        pacer.spaced = True
        pacer.lingers = True
        scheduler.call_later(PACE_STEP_US, lambda: self._keep_lingering(scheduler, pacer))

    def _keep_limiting(self, scheduler: VirtualScheduler, admission: Admission) -> None:
        admission.limit = self.chance.choice((0, 1, 3))
        scheduler.call_later(PACE_STEP_US, lambda: self._keep_limiting(scheduler, admission))

    def kill(self, *, power: bool = False, keep_some: bool = False) -> None:
        """The broker dies at once.

        Args:
            power: and the machine with it: what was not synced is lost.
            keep_some: some of what was not synced may survive, as chance will have it.
        """
        self.power_cut_count += power
        if self.scheduler is not None:
            self.scheduler.kill()
        self.network.broker_died()
        self.broker = None
        self.scheduler = None
        self.store = self.store.crash(power=power, chance=self.chance if keep_some else None)

    def stop(self) -> None:
        """The broker stops in order."""
        broker = self.live
        assert self.scheduler is not None
        broker.stop_taking(0x8B)
        self.scheduler.run(broker.finish())
        self.store.close()
        self.kill()

    # Time.

    def run_for(self, delay_us: int) -> None:
        """Let time pass; a broker that dies in a write stays dead."""
        end_us = self.clock.monotonic_us() + delay_us
        while True:
            try:
                self.loop.run_for(end_us - self.clock.monotonic_us())
            except ProcessDied:
                self._died()
            else:
                return

    def run_until(self, condition: Callable[[], bool], *, limit_us: int = 60_000_000) -> bool:
        """Let time pass until something holds; False if it never does."""
        end_us = self.clock.monotonic_us() + limit_us
        while True:
            try:
                return self.loop.run_until(condition, limit_us=end_us - self.clock.monotonic_us())
            except ProcessDied:
                self._died()

    def logged(self, event: str) -> list[dict[str, object]]:
        """The values of each time that an event was logged."""
        return [values for name, values in self.events if name == event]

    async def _pause(self, scheduler: VirtualScheduler) -> None:
        if self.chance.random() < 0.3:
            gate = scheduler.gate()
            scheduler.call_later(self.chance.choice((0, 50, 400, 2_000)), gate.open)
            await gate

    def _died(self) -> None:
        self.deaths += 1
        self.kill(power=self.power_cuts and self.chance.random() < 0.5, keep_some=True)

    def _log(self) -> FilteringBoundLogger:
        events = self.events

        def remember(
            logger: object, method: str, values: structlog.typing.EventDict
        ) -> structlog.typing.EventDict:
            events.append((str(values["event"]), dict(values)))
            return values

        return cast(
            "FilteringBoundLogger",
            structlog.wrap_logger(
                CapturingLogger(),
                processors=[remember],
                # Whatever another test has set.
                wrapper_class=structlog.make_filtering_bound_logger(0),
                context_class=dict,
                cache_logger_on_first_use=False,
            ),
        )
