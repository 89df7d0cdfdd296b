"""What a client says to a node before it goes to another one counts there, as on one broker."""

from __future__ import annotations

import pytest

from perdure.mqtt.packets import Ack, Disconnect, Publish
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_last_words_come_once_and_before_the_next(seed: int) -> None:
    """Whether the log has them or the claim first; QoS 2 that is sent again is known."""
    cluster = VirtualCluster(Options(), seed=seed)
    cluster.start()
    first, second, third = cluster.nodes
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("t/#", qos=2)
    leaving = Client(first, "c", acks=False)
    leaving.connect(expiry_s=600)
    twice = Publish("t/2", b"two", qos=2, packet_id=7)
    leaving.send(
        Publish("t/0", b"zero", qos=0),
        Publish("t/1", b"one", qos=1, packet_id=6, retain=True),
        twice,
        Disconnect(0),
    )
    while not leaving.is_lost:
        first.run_for(50)
    back = Client(second, "c")
    assert back.connect(expiry_s=600).session_present
    back.send(twice)
    assert back.take(Ack).packet_id == twice.packet_id
    back.publish("t/1", b"later")
    first.run_for(1_000_000)
    found = [each.payload for each in watcher.received if isinstance(each, Publish)]
    assert sorted(found) == [b"later", b"one", b"two", b"zero"]
    assert found.index(b"one") < found.index(b"later")
    late = Client(second, "late")
    late.connect()
    late.subscribe("t/1", qos=1)
    assert late.payloads() == [b"one"]
    cluster.check_health()
    cluster.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_that_is_taken_over_keeps_its_share(seed: int) -> None:
    """Its node lets go of it and claims it again: a node that hears of the first only waits."""
    cluster = VirtualCluster(Options(), seed=seed)
    cluster.start()
    first, second, third = cluster.nodes
    one = Client(first, "one", acks=False)
    one.connect(expiry_s=600)
    one.subscribe("$share/g/t", qos=1)
    publisher = Client(third, "publisher")
    publisher.connect()
    publisher.deliver("t", b"x", qos=1)
    first.run_for(100_000)
    other = Client(second, "other")
    other.connect(expiry_s=600)
    other.subscribe("$share/g/t", qos=1)
    again = Client(first, "one", acks=False)
    assert again.connect(expiry_s=600).session_present
    first.run_for(1_000_000)
    assert [(each.payload, each.dup) for each in again.messages] == [(b"x", True)]
    assert other.messages == []
    again.disconnect()
    first.run_for(1_000_000)
    assert [each.payload for each in other.messages] == [b"x"]
    cluster.check_health()
    cluster.close()
