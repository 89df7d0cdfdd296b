"""A member of a shared group comes to the node that serves the group, with a share on its way."""

from __future__ import annotations

import pytest

from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("later_us", [0, 500, 2_000, 10_000, 1_000_000])
@pytest.mark.parametrize("seed", range(3))
def test_what_it_was_given_elsewhere_comes_here(seed: int, later_us: int, qos: int) -> None:
    """Nothing that follows tells that node's clients that there is something new."""
    cluster = VirtualCluster(Options(), seed)
    cluster.start()
    first, second, _ = cluster.nodes
    full = Client(second, "full", acks=False)
    full.connect(expiry_s=600, receive_maximum=1)
    full.subscribe("$share/g/t", qos=qos)
    publisher = Client(second, "p")
    publisher.connect()
    publisher.deliver("t", b"0", qos=qos)
    moving = Client(first, "m", acks=False)
    moving.connect(expiry_s=600)
    moving.subscribe("$share/g/t", qos=qos)
    first.run_for(1_000_000)
    for number in range(1, 4):
        publisher.deliver("t", b"%d" % number, qos=qos)
    first.run_for(later_us)
    moved = Client(second, "m")
    moved.connect(expiry_s=600)
    first.run_for(2_000_000)
    assert {message.payload for message in moved.messages} == {b"1", b"2", b"3"}
    cluster.check_health()
    cluster.close()
