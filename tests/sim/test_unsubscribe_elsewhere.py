"""UNSUBSCRIBE at one node behind what another one has acknowledged."""

from __future__ import annotations

import pytest

from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("expiry_s", [0, 600])
@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_before_is_still_delivered(
    seed: int, expiry_s: int, qos: int
) -> None:
    """As on one broker, and nothing of what comes behind."""
    cluster = VirtualCluster(Options(), seed)
    cluster.start()
    first, second, _ = cluster.nodes
    reader = Client(second, "r")
    reader.connect(expiry_s=expiry_s)
    publisher = Client(first, "p")
    publisher.connect()
    for number in range(10):
        reader.subscribe("t", qos=qos)
        publisher.deliver("t", b"%d" % number, qos=qos)
        reader.unsubscribe("t")
        publisher.deliver("t", b"unwanted", qos=qos)
    first.run_for(1_000_000)
    assert [message.payload for message in reader.messages] == [b"%d" % n for n in range(10)]
    cluster.check_health()
    cluster.close()
