"""Whole-broker simulations: a seed decides everything that happens to a broker and its clients.

A run has two phases. First come the faults: clients publish, hold back acknowledgements, go
away, come twice; the network splits, delays and cuts; the broker is killed between two callbacks
or in the middle of a write, with or without the machine's power; the disk refuses writes or
syncs; the log is rotated and its old generations dropped. Then everything is healed, everybody
takes what is owed, and the checkers compare what was promised with what was kept.

The same seed gives the same run. What a run did is in ``Report.trace``. Who takes part is in
``scenario``, what may happen in ``events``.
"""

from __future__ import annotations

from typing import Final, final

from tests.support.checkers import broken_promises, unsettled, wrong_retained
from tests.support.delivery import audit
from tests.support.events import Events
from tests.support.peers import Subscriber
from tests.support.plan import Plan
from tests.support.scenario import Report, Scenario
from tests.support.storage import FaultyDatabase

DRAIN_STEP_US: Final = 500_000
DRAIN_LIMIT_US: Final = 30_000_000
TICK_US: Final = 10_000


@final
class Simulation:
    """One run.

    Args:
        seed: of everything.
        plan: what it may contain; None = drawn from the seed.
        store: the first store, for planted faults.
    """

    def __init__(
        self, seed: int, *, plan: Plan | None = None, store: FaultyDatabase | None = None
    ) -> None:
        self.scenario = Scenario(seed, plan=plan, store=store)
        self._is_healed = False

    def run(self) -> Report:
        """Run it."""
        scenario = self.scenario
        sim = scenario.sim
        scenario.start()
        for connection in scenario.connections():
            connection.connect()
        assert sim.run_until(
            lambda: all(connection.peer.is_subscribed for connection in scenario.subscribers)
        ), "the first SUBACK never came"
        self._tick()
        actions = Events(scenario).weighted()
        weights = [weight for weight, _ in actions]
        for _ in range(scenario.plan.steps):
            _, action = scenario.chance.choices(actions, weights)[0]
            action()
            sim.run_for(scenario.chance.choice((0, 50, 500, 3_000, 15_000)))
            if sim.broker is None and scenario.chance.random() < 0.3:
                scenario.start()
        self._heal()
        self._drain()
        self._audit()
        return scenario.report

    def _heal(self) -> None:
        scenario = self.scenario
        self._is_healed = True
        scenario.trace("everything is healed")
        scenario.sim.store.heal()
        scenario.sim.store.die_in = -1
        if scenario.sim.broker is None:
            scenario.start()
        for connection in scenario.subscribers:
            connection.peer.hold = 0.0
            connection.take_again()
        for anyone in scenario.connections():
            if not anyone.peer.is_connected:
                anyone.connect()

    def _drain(self) -> None:
        scenario = self.scenario
        sim = scenario.sim
        for _ in range(DRAIN_LIMIT_US // DRAIN_STEP_US):
            sim.run_for(DRAIN_STEP_US)
            under_way = sum(len(connection.peer.under_way) for connection in scenario.publishers)
            if not under_way and not self._lost():
                break
        # What comes now has come before.
        sim.run_for(DRAIN_STEP_US)
        self._come_late()

    def _come_late(self) -> None:
        """Someone asks for the retained messages, someone for all of the past."""
        scenario = self.scenario
        state = Subscriber("late-state", [("state/+", 2)], protocol=5, chance=scenario.chance)
        past = Subscriber(
            "late-past", [("load/#", 2)], protocol=4, chance=scenario.chance, prefix="$replay/0/"
        )
        for peer in (state, past):
            scenario.connection_of(peer).connect()
        scenario.sim.run_for(20 * DRAIN_STEP_US)
        scenario.report.breaches += wrong_retained(scenario.ledger, state.retained)
        if not scenario.plan.generations:
            scenario.report.breaches += broken_promises(scenario.ledger, [], [past])

    def _audit(self) -> None:
        scenario = self.scenario
        report = scenario.report
        for connection in scenario.publishers:
            report.breaches += [f"still under way: {m}" for m in connection.peer.under_way.values()]
        report.breaches += broken_promises(
            scenario.ledger,
            [connection.peer for connection in scenario.publishers],
            scenario.subscriber_peers(),
            [scenario.group],
        )
        report.breaches += unsettled(
            scenario.sim, [p.client_id for p in scenario.subscriber_peers()]
        )
        report.crashes += scenario.sim.deaths
        report.published = scenario.ledger.acknowledged_count
        report.delivered = sum(
            connection.peer.receipts.count for connection in scenario.subscribers
        )

    def _lost(self) -> int:
        scenario = self.scenario
        return sum(audit(scenario.ledger, p.receipts).lost for p in scenario.subscriber_peers())

    def _tick(self) -> None:
        """Held acknowledgements go out now and then; a dead broker is started in the end."""
        scenario = self.scenario
        for connection in scenario.subscribers:
            if connection.peer.is_connected and (self._is_healed or scenario.chance.random() < 0.3):
                connection.write(connection.peer.release_held())
        scenario.sim.loop.call_later(TICK_US, self._tick)
