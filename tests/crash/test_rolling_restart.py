"""Each of three nodes is restarted in turn, as an upgrade does it, while clients publish.

Clients connect again to whichever node there is. What was acknowledged is neither lost nor out of
order, QoS 2 comes once, messages are taken while each node is away, and all nodes hold the same.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.cluster_processes import NODES, ClusterProcesses
from tests.support.cluster_rounds import STOPPED, ClusterRounds
from tests.support.seeds import chosen_seed


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_nodes_are_restarted_one_by_one_under_load(tmp_path: Path) -> None:
    seed = chosen_seed()
    print(f"\nrepeat with: PERDURE_SEED={seed}")
    cluster = ClusterProcesses(tmp_path, random.Random(seed), ["storage.outage_max=60s"])
    rounds = ClusterRounds(cluster, seed=seed, say=print, faults=["restart_nodes"])
    try:
        await cluster.open()
        outcome = await rounds.run(1)
    finally:
        await cluster.close()
    assert not outcome.failures, "\n".join([f"seed {seed}", *outcome.failures])
    times_s = rounds.recoveries_s[STOPPED]
    assert len(times_s) == NODES
    print(f"messages taken {max(times_s):.1f} s after a node had ended, at most")
    assert outcome.published > 0
    assert outcome.delivered > 0
    assert rounds.verified > 0
