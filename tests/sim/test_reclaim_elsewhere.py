"""What a dead node's client holds of several groups, which several nodes serve."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_what_two_nodes_take_back_at_once_is_given_once(qos: int, seed: int) -> None:
    """Each takes all of it back. At QoS 2 what was sent stays with who was sent it."""
    cluster = VirtualCluster(Options(), seed)
    cluster.start()
    first, second, third = cluster.nodes
    others = [Client(second, "b"), Client(third, "c")]
    for client, name in zip(others, ("$share/g/t", "$share/h/u"), strict=True):
        client.connect(expiry_s=3600)
        client.subscribe(name, qos=qos)
    holder = Client(first, "m", acks=False)
    holder.connect(expiry_s=3600, receive_maximum=50)
    holder.subscribe("$share/g/t", qos=qos)
    holder.subscribe("$share/h/u", qos=qos)
    publisher = Client(second, "p")
    publisher.connect()
    first.run_for(1_000_000)
    for number in range(12):
        publisher.deliver("t", b"t%d" % number, qos=qos)
        publisher.deliver("u", b"u%d" % number, qos=qos)
    first.run_for(1_000_000)
    held = {message.payload for message in holder.messages}
    assert len(held) == 12
    first.kill()
    first.start()  # it says that what it was is gone
    first.run_for(20_000_000)
    found = Counter(message.payload for client in others for message in client.messages)
    assert set(found.values()) == {1}
    assert len(found) == (24 if qos == 1 else 12)
    back = Client(first, "m")
    back.connect(expiry_s=3600)
    first.run_for(1_000_000)
    assert {message.payload for message in back.messages} == (held if qos == 2 else set())
    cluster.check_health()
    cluster.close()
