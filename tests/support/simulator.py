"""Whole-broker simulations: a seed decides everything that happens to a broker and its clients.

A run has two halves. First the world is unkind: clients publish, hold back acknowledgements, go
away, come twice; the network splits, delays and cuts; the broker is killed between two callbacks
or in the middle of a write, with or without the machine's power; the disk refuses writes or
syncs; the log is rotated and its old generations dropped. Then the world is healed, everybody
takes what is owed, and the checkers compare what was promised with what was kept.

The same seed gives the same run. What a run did is in ``Report.story``. Who takes part is in
``scene``, what may happen in ``events``.
"""

from __future__ import annotations

from typing import Final, final

from tests.support.checkers import broken_promises, unsettled, wrong_retained
from tests.support.delivery import audit
from tests.support.events import Events
from tests.support.peers import Subscriber
from tests.support.plan import Plan
from tests.support.scene import Report, Scene
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
        self._scene = Scene(seed, plan=plan, store=store)
        self._is_healed = False

    def run(self) -> Report:
        """Run it."""
        scene = self._scene
        world = scene.world
        scene.start()
        for seat in scene.seats():
            seat.connect()
        assert world.run_until(
            lambda: all(seat.peer.is_subscribed for seat in scene.subscribers)
        ), "the first SUBACK never came"
        self._tick()
        actions = Events(scene).weighted()
        weights = [weight for weight, _ in actions]
        for _ in range(scene.plan.steps):
            _, action = scene.chance.choices(actions, weights)[0]
            action()
            world.run_for(scene.chance.choice((0, 50, 500, 3_000, 15_000)))
            if world.broker is None and scene.chance.random() < 0.3:
                scene.start()
        self._heal()
        self._drain()
        self._audit()
        return scene.report

    def _heal(self) -> None:
        scene = self._scene
        self._is_healed = True
        scene.tell("everything is healed")
        scene.world.store.heal()
        scene.world.store.die_in = -1
        if scene.world.broker is None:
            scene.start()
        for seat in scene.subscribers:
            seat.peer.hold = 0.0
            seat.take_again()
        for anyone in scene.seats():
            if not anyone.peer.is_connected:
                anyone.connect()

    def _drain(self) -> None:
        scene = self._scene
        world = scene.world
        for _ in range(DRAIN_LIMIT_US // DRAIN_STEP_US):
            world.run_for(DRAIN_STEP_US)
            under_way = sum(len(seat.peer.under_way) for seat in scene.publishers)
            if not under_way and not self._lost():
                break
        # What comes now has come before.
        world.run_for(DRAIN_STEP_US)
        self._come_late()

    def _come_late(self) -> None:
        """Someone asks for the retained messages, someone for all of the past."""
        scene = self._scene
        state = Subscriber("late-state", [("state/+", 2)], protocol=5, chance=scene.chance)
        past = Subscriber(
            "late-past", [("load/#", 2)], protocol=4, chance=scene.chance, prefix="$replay/0/"
        )
        for peer in (state, past):
            scene.seat(peer).connect()
        scene.world.run_for(20 * DRAIN_STEP_US)
        scene.report.breaches += wrong_retained(scene.ledger, state.retained)
        if not scene.plan.generations:
            scene.report.breaches += broken_promises(scene.ledger, [], [past])

    def _audit(self) -> None:
        scene = self._scene
        report = scene.report
        for seat in scene.publishers:
            report.breaches += [f"still under way: {m}" for m in seat.peer.under_way.values()]
        report.breaches += broken_promises(
            scene.ledger,
            [seat.peer for seat in scene.publishers],
            scene.subscriber_peers(),
            [scene.group],
        )
        report.breaches += unsettled(scene.world, [p.client_id for p in scene.subscriber_peers()])
        report.crashes += scene.world.deaths
        report.published = scene.ledger.acknowledged_count
        report.delivered = sum(seat.peer.receipts.count for seat in scene.subscribers)

    def _lost(self) -> int:
        scene = self._scene
        return sum(audit(scene.ledger, p.receipts).lost for p in scene.subscriber_peers())

    def _tick(self) -> None:
        """Held acknowledgements go out now and then; a dead broker is started in the end."""
        scene = self._scene
        for seat in scene.subscribers:
            if seat.peer.is_connected and (self._is_healed or scene.chance.random() < 0.3):
                seat.write(seat.peer.release_held())
        scene.world.loop.call_later(TICK_US, self._tick)
