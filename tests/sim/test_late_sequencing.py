"""The whole broker on a log that is elsewhere: batches are sequenced late, between those of others.

Nothing that a client is told may rest on an offset that a batch does not have yet, no answer may
leave before its batch came back, and whoever reads what it has written waits for that. Another
node on the same log must come to the same state from the bytes alone.
"""

from __future__ import annotations

import random

import pytest

from tests.support.ordered_log import LateDatabase, Neighbour, OrderedLog, digest
from tests.support.plan import Plan
from tests.support.scenario import Report
from tests.support.simulation import Simulation

SEEDS = range(40)


def run(seed: int, plan: Plan | None = None, *, has_peers: bool = False) -> Report:
    """A simulation on an ordered log with a neighbour; both nodes hold the same in the end.

    Args:
        has_peers: the broker knows that it is a node among others.
    """
    chance = random.Random(seed + 77)
    log = OrderedLog(chance)
    store = LateDatabase(log=log, has_peers=has_peers)
    neighbour = Neighbour(log, chance)
    if plan is None:
        plan = Plan.of(random.Random(seed))
        plan.storage_faults = False
    simulation = Simulation(seed, plan=plan, store=store)
    report = simulation.run()
    log.before_record = None
    log.sequence_all()
    if digest(simulation.scenario.sim.store) != digest(neighbour.node):
        report.breaches.append("two nodes of one log differ")
    return report


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept_on_a_log_elsewhere(seed: int) -> None:
    report = run(seed, has_peers=seed % 2 == 1)
    print(*report.trace, *report.breaches, sep="\n")
    assert report.breaches == []
    assert report.published > 0
