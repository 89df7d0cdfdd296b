"""A shared group that is ended by one node while somebody joins it on another."""

from __future__ import annotations

import random

import pytest

from perdure.mqtt.packets import Subscribe, SubscribeFilter
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster

NAME = "$share/g/t"


@pytest.mark.parametrize("seed", [*range(10), 61, 67, 78, 88, 95])
def test_whoever_joins_a_group_that_is_being_ended_has_one(seed: int) -> None:
    """Now, and when all nodes have died."""
    cluster = VirtualCluster(Options(), seed)
    cluster.start()
    first, second, third = cluster.nodes
    before = Client(first, "before")
    before.connect(expiry_s=0)
    before.subscribe(NAME, qos=1)
    after = Client(second, "after")
    after.connect(expiry_s=600)
    publisher = Client(third, "p")
    publisher.connect()
    chance = random.Random(seed)
    assert before.wire is not None
    leave_us, join_us = chance.randrange(30_000), chance.randrange(60_000)
    first.loop.call_later(leave_us, before.wire.cut)
    subscribe = Subscribe(7, [SubscribeFilter(NAME, 1)])
    first.loop.call_later(join_us, lambda: after.send(subscribe))
    first.run_for(2_000_000)
    publisher.publish("t", b"now", qos=1)
    assert after.payloads() == [b"now"]
    after.cut()
    publisher.publish("t", b"then", qos=1)
    first.run_for(500_000)
    cluster.kill9()
    again = Client(third, "after")
    assert again.connect(expiry_s=600).session_present
    assert again.payloads(within_us=2_000_000) == [b"then"]
    cluster.close()
