"""A node that needs room drops what other nodes have still: what is lost is counted once, and what
a client is sent all the same is not."""

from __future__ import annotations

from typing import Final

import pytest

from perdure.mqtt.packets import PUBACK, Ack, Publish
from tests.sim.test_cluster_retention import payloads
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_broker import SETTLE_US
from tests.wire.virtual_cluster import VirtualCluster

MESSAGES: Final = [b"%02d" % number for number in range(40)]


def give_up_all(node: SimBroker) -> None:
    """Rotate, and drop everything before, whoever is owed it."""
    node.store.rotate(node.clock.now_us())
    assert node.scheduler is not None
    budget = node.live.services.retention._budget

    async def drop() -> None:
        for info in node.store.generations()[:-1]:
            await budget.drop(info)

    node.scheduler.run(drop())


def lost(cluster: VirtualCluster) -> int:
    """What all nodes have counted."""
    return sum(node.live.services.metrics.messages_dropped_retention for node in cluster.nodes)


@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
@pytest.mark.parametrize("returns_to", [0, 1])
@pytest.mark.parametrize("pending_max", [2, 100])
def test_what_is_not_counted_is_sent(topic_filter: str, returns_to: int, pending_max: int) -> None:
    """To whoever is connected to another node, from what that one has in memory."""
    cluster = VirtualCluster(
        Options(settings={"session.memory_pending_max": str(pending_max)}), seed=1
    )
    cluster.start()
    first, second, _ = cluster.nodes
    publisher = Client(first, "p")
    publisher.connect()
    reader = Client(second, "r", acks=False)
    reader.connect(expiry_s=3600, receive_maximum=1)
    reader.subscribe(topic_filter, qos=1)
    for payload in MESSAGES:
        publisher.deliver("t", payload)
    first.run_for(SETTLE_US)
    give_up_all(first)
    counted = lost(cluster)
    while messages := reader.take_all(Publish):
        reader.send(*[Ack(PUBACK, message.packet_id) for message in messages])
        first.run_for(SETTLE_US)
    reader.cut()
    give_up_all(cluster.nodes[2])
    give_up_all(second)
    first.run_for(SETTLE_US)
    back = Client(cluster.nodes[returns_to], "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert lost(cluster) == counted
    found = set(payloads(reader)) | set(payloads(back))
    assert len(found) == len(MESSAGES) - counted
    assert found == set(MESSAGES[: len(found)])
    cluster.check_health()
    cluster.close()
