"""A shared group that is ended by one node while somebody joins it on another."""

from __future__ import annotations

import random

import pytest

from perdure.errors import StorageUnavailable
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


@pytest.mark.parametrize("recovers", [False, True])
def test_a_member_elsewhere_that_could_not_be_looked_at_is_looked_at_again(
    recovers: bool,
) -> None:
    """A read fails, or the store refuses writes at that moment; nothing else asks for it later."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    slow = Client(first, "slow", acks=False)
    slow.connect(receive_maximum=1)
    slow.subscribe(NAME, qos=1)
    store = first.store
    committer = first.live.services.committer
    if recovers:
        committer.writable = False
    else:
        store.read_error = StorageUnavailable("not now")  # type: ignore[attr-defined]
    other = Client(second, "other")
    other.connect()
    other.subscribe(NAME, qos=1)
    first.run_for(3_000_000)
    committer.writable = True
    store.read_error = None  # type: ignore[attr-defined]
    first.run_for(3_000_000)
    publisher = Client(third, "p")
    publisher.connect()
    for number in range(4):
        publisher.publish("t", b"%d" % number, qos=1)
    first.run_for(3_000_000)
    found = {message.payload for client in (slow, other) for message in client.messages}
    assert found == {b"0", b"1", b"2", b"3"}
    cluster.close()
