"""A client that comes to another node while its last one is late: its will comes once."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from perdure.broker.sessions.claims import HANDOVER_US
from perdure.model import Will
from perdure.mqtt.packets import Publish
from tests.support.ordered_log import OrderedLog
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


@pytest.mark.parametrize("late_us", [*range(-6_000, 2_000, 250), -HANDOVER_US, 200_000])
def test_a_will_is_handed_over_or_published_but_not_both(late_us: int) -> None:
    """Its node answers at any instant around the one at which the new owner stops to wait."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    log: OrderedLog = first.store.log  # type: ignore[attr-defined]
    slow_us = 0
    loop = first.loop

    def read_later(read: Callable[[], object]) -> object:
        of_first = isinstance(read, functools.partial) and first.store.replica.end in read.args  # type: ignore[attr-defined]
        return loop.call_later(slow_us if of_first else 200, read)

    log.read_later = read_later
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("will", qos=2)
    Client(first, "c").connect(will=Will("will", b"gone", 1, False), expiry_s=600)
    slow_us = HANDOVER_US + late_us
    moved = Client(second, "c")
    assert moved.connect(expiry_s=600).session_present
    slow_us = 200
    first.run_for(3_000_000)
    assert [each.payload for each in watcher.received if isinstance(each, Publish)] == [b"gone"]
    cluster.close()
