"""Clients of three nodes, each connection at one of them by chance, are sent what one broker sends.

``PERDURE_SEED`` and ``PERDURE_SIM_SEEDS`` say which scripts, and how many.
"""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from tests.support.sim_broker import SimBroker
from tests.support.spread_script import Spread
from tests.wire.harness import Options
from tests.wire.virtual_broker import VirtualBroker
from tests.wire.virtual_cluster import VirtualCluster

STEPS: Final = 60
SEED: Final = int(os.environ.get("PERDURE_SEED") or 0)
SEEDS: Final = int(os.environ.get("PERDURE_SIM_SEEDS") or 12)


def one(seed: int, *, is_hasty: bool) -> Spread:
    """What a script comes to at one broker."""
    broker = VirtualBroker(Options(), seed)
    broker.start()
    script = Spread(seed, lambda: broker.sim, is_hasty=is_hasty)
    script.play(STEPS)
    broker.check_health()
    broker.close()
    return script


def spread(seed: int, *, is_hasty: bool) -> Spread:
    """What it comes to where each connection is at one of three nodes."""
    cluster = VirtualCluster(Options(), seed)
    cluster.start()
    chance = random.Random(seed)

    def place() -> SimBroker:
        return chance.choice(cluster.nodes)

    script = Spread(seed, place, is_hasty=is_hasty)
    script.play(STEPS)
    cluster.check_health()
    cluster.close()
    return script


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_no_client_can_tell_three_nodes_from_one_broker(seed: int) -> None:
    assert spread(seed, is_hasty=False).told == one(seed, is_hasty=False).told


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_who_goes_in_haste_gets_the_same_in_the_same_order(seed: int) -> None:
    assert spread(seed, is_hasty=True).arrivals() == one(seed, is_hasty=True).arrivals()
