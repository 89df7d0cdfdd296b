"""A shared group that is ended by one node while somebody joins it on another."""

from __future__ import annotations

import random

import msgspec
import pytest

from perdure.errors import StorageUnavailable
from perdure.model import Message
from perdure.mqtt.packets import Publish, Subscribe, SubscribeFilter
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


@pytest.mark.parametrize("after_us", range(500, 720, 20))
def test_what_a_group_gave_in_vain_does_not_fill_a_window_for_ever(after_us: int) -> None:
    """Another node has written the group's record first: what is under way to a member that has
    no room for more does not count, and the group waits for this very member."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, _, third = cluster.nodes
    member = Client(first, "member")
    member.connect(receive_maximum=1)
    member.subscribe(NAME, qos=1)
    publisher = Client(first, "p")
    publisher.connect()
    first.run_for(1_000_000)
    elsewhere = third.live.services
    for number in range(3):
        publisher.send(Publish("t", b"%d" % number, 1, packet_id=number + 1))

    def take() -> None:
        elsewhere.shared_subscriptions.groups["g/t"]._own("", 0)
        elsewhere.pipeline.schedule()

    first.loop.call_later(after_us, take)
    first.run_for(5_000_000)
    assert member.payloads() == [b"0", b"1", b"2"]
    cluster.close()


def test_what_is_given_in_a_batch_that_is_open_when_another_record_is_heard_of_does_not_count() -> (
    None
):
    """Else it is given once by this node as it was, and once by who has the group then."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, _, third = cluster.nodes
    member = Client(first, "member", acks=False)
    member.connect(receive_maximum=1)
    member.subscribe(NAME, qos=2)
    publisher = Client(first, "p")
    publisher.connect()
    publisher.publish("t", b"0", qos=2)
    publisher.publish("t", b"1", qos=2)
    first.run_for(1_000_000)
    waits = member.received[-1]
    assert member.payloads() == [b"0"]
    here, elsewhere = first.live.services, third.live.services
    offset = here.dispatcher.offset

    elsewhere.shared_subscriptions.groups["g/t"]._own("", 0)
    elsewhere.pipeline.run()
    group = here.shared_subscriptions.groups["g/t"]
    heard = msgspec.structs.replace(group.record, turn=group.record.turn + 1, node="")
    group._give(group.takers[0], Message("t", b"1", 2, publisher="p", offset=offset))
    here.shared_subscriptions.heard(heard)
    here.pipeline.run()
    first.run_for(1_000_000)

    member.acks = True
    member._answer(waits)
    assert member.payloads(within_us=5_000_000) == [b"1"]
    cluster.close()


def test_what_goes_on_from_a_record_that_was_refused_is_refused() -> None:
    """Two nodes take a group at once. What the one whose record comes second gives out behind it
    does not count, and the other one has the group: else each takes the other one for it."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    members = [Client(node, f"member-{number}") for number, node in enumerate((first, second))]
    for member in members:
        member.connect()
        member.subscribe(NAME, qos=1)
    publisher = Client(third, "p")
    publisher.connect()
    first.run_for(1_000_000)
    log = first.store.log  # type: ignore[attr-defined]
    end = first.store.replica.end  # type: ignore[attr-defined]
    end.is_cut = True
    for node, records in ((first, 3), (second, 1)):
        services = node.live.services
        group = services.shared_subscriptions.groups["g/t"]
        assert services.peers is not None
        group._own(services.peers.node, services.peers.incarnation)
        for _ in range(records):
            group.put(services.committer.batch)
            services.pipeline.run()
    log.sequence_all()
    end.is_cut = False
    log.sequence_all()
    first.run_for(1_000_000)
    groups = [node.live.services.shared_subscriptions.groups["g/t"] for node in cluster.nodes]
    assert [group.is_served for group in groups] == [False, True, False]
    assert len({group.record.turn for group in groups}) == 1
    for number in range(6):
        publisher.publish("t", b"%d" % number, qos=1)
    first.run_for(3_000_000)
    found = [payload for member in members for payload in member.payloads()]
    assert sorted(found) == [b"%d" % number for number in range(6)]
    cluster.close()
