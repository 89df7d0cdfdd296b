"""Generations are each node's own business: one node may drop what another one has still. What
clients are owed of it stays, wherever they go."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.broker.retention.session_carry import DUTY
from perdure.errors import StorageConflict
from perdure.mqtt.packets import Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_broker import SETTLE_US
from tests.wire.virtual_cluster import VirtualCluster

MESSAGES = [b"%d" % number for number in range(6)]


def drop_all(node: SimBroker) -> bool:
    """Rotate, and drop everything before; False if that has to wait for another node."""
    node.store.rotate(node.clock.now_us())
    assert node.scheduler is not None

    refused: list[StorageConflict] = []

    async def drop() -> None:
        try:
            for info in node.store.generations()[:-1]:
                await node.live.services.retention.drop(info)
        except StorageConflict as error:
            refused.append(error)

    node.scheduler.run(drop())
    return not refused


def payloads(client: Client) -> list[bytes]:
    return [each.payload for each in client.messages if isinstance(each, Publish)]


@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
@pytest.mark.parametrize("carries", [False, True])
def test_what_is_owed_to_who_is_connected_elsewhere_is_kept(
    topic_filter: str, carries: bool
) -> None:
    """Its node has not dropped it yet, and need not before the client comes here."""
    cluster = VirtualCluster(Options(), seed=1)
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
    assert payloads(reader) == MESSAGES[:1]
    assert not drop_all(first)
    if carries:
        # Its node drops its own: nothing more has to wait for it.
        assert drop_all(second)
        first.run_for(SETTLE_US)
        assert drop_all(first)
    back = Client(first, "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert drop_all(first)
    first.run_for(SETTLE_US)
    assert sorted(payloads(back)) == MESSAGES
    cluster.check_health()
    cluster.close()


@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
@pytest.mark.parametrize("moves", [False, True])
def test_who_takes_nothing_elsewhere_holds_up_one_look(topic_filter: str, moves: bool) -> None:
    """Its node carries over what it is owed when it is asked to, and keeps its own generations."""
    cluster = VirtualCluster(Options(), seed=1)
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
    generations = len(second.store.generations())
    assert not drop_all(first)
    first.run_for(SETTLE_US)
    assert drop_all(first)
    assert len(second.store.generations()) == generations
    back = Client(first if moves else second, "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert sorted(payloads(back)) == MESSAGES
    cluster.check_health()
    cluster.close()


@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("returns_to", [0, 1])
def test_what_is_owed_to_who_is_away_is_kept(
    topic_filter: str, order: tuple[int, ...], returns_to: int
) -> None:
    """Whichever node drops first, also a group whose members are all away."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    publisher = Client(first, "p")
    publisher.connect()
    reader = Client(second, "r")
    reader.connect(expiry_s=3600)
    reader.subscribe(topic_filter, qos=1)
    reader.cut()
    first.run_for(SETTLE_US)
    for payload in MESSAGES:
        publisher.deliver("t", payload)
    first.run_for(SETTLE_US)
    for number in order:
        assert drop_all(cluster.nodes[number])
        first.run_for(SETTLE_US)
    back = Client(cluster.nodes[returns_to], "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert sorted(payloads(back)) == MESSAGES
    cluster.check_health()
    cluster.close()


def test_nodes_that_wait_for_each_other_come_on() -> None:
    """Each has a client that is owed something from what both are to drop."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    publisher = Client(first, "p")
    publisher.connect()
    for node, client_id in ((first, "a"), (second, "b")):
        reader = Client(node, client_id, acks=False)
        reader.connect(expiry_s=3600, receive_maximum=1)
        reader.subscribe("t", qos=1)
    for payload in MESSAGES:
        publisher.deliver("t", payload)
    first.run_for(SETTLE_US)
    assert not drop_all(first)
    first.run_for(SETTLE_US)
    assert drop_all(second)
    first.run_for(SETTLE_US)
    assert drop_all(first)
    for node, client_id in ((second, "a"), (first, "b")):
        back = Client(node, client_id)
        back.connect(expiry_s=3600)
        first.run_for(SETTLE_US)
        assert payloads(back) == MESSAGES
    cluster.check_health()
    cluster.close()


def test_a_client_that_moves_while_it_is_carried_over_loses_nothing() -> None:
    """What a node puts into its private stream then is refused."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    publisher = Client(second, "p")
    publisher.connect()
    reader = Client(second, "r")
    reader.connect(expiry_s=3600)
    reader.subscribe("t", qos=1)
    reader.cut()
    first.run_for(SETTLE_US)
    for payload in MESSAGES:
        publisher.deliver("t", payload)
    first.run_for(SETTLE_US)
    read = first.store.read
    moved = Client(second, "r", acks=False)

    async def move_then_read(*args: Any, **values: Any) -> Any:
        if moved.wire is None:
            moved.connect(expiry_s=3600, receive_maximum=1, wait=False)
            services = first.live.services
            while not (await services.database.open_session("r")).record.connected:  # type: ignore[union-attr]
                gate = services.scheduler.gate()
                services.scheduler.call_later(1_000, gate.open)
                await gate
        return await read(*args, **values)

    first.store.read = move_then_read  # type: ignore[method-assign]
    drop_all(first)
    first.store.read = read  # type: ignore[method-assign]
    assert moved.wire is not None
    first.run_for(SETTLE_US)
    back = Client(first, "r")
    back.connect(expiry_s=3600)
    first.run_for(SETTLE_US)
    assert payloads(back) == MESSAGES
    cluster.check_health()
    cluster.close()


def test_a_replay_of_who_is_away_is_kept_by_the_nodes_that_do_not_carry_it_over() -> None:
    cluster = VirtualCluster(Options(settings={"session.feed_chunk": "1"}), seed=1)
    cluster.start()
    one_of_all, *others = sorted(
        cluster.nodes,
        key=lambda node: not node.live.services.peers.owns(DUTY),  # type: ignore[union-attr]
    )
    begun_us = one_of_all.clock.now_us()
    publisher = Client(one_of_all, "p")
    publisher.connect()
    messages = [b"%d" % number for number in range(100)]
    for payload in messages:
        publisher.deliver("t", payload)
    reader = Client(others[0], "r", acks=False)
    reader.connect(expiry_s=3600, receive_maximum=1)
    reader.subscribe(f"$replay/{begun_us - begun_us % 1_000}/t", qos=1)
    reader.cut()
    one_of_all.run_for(SETTLE_US)
    drop_all(others[1])
    one_of_all.run_for(SETTLE_US)
    back = Client(others[1], "r")
    back.connect(expiry_s=3600)
    one_of_all.run_for(SETTLE_US)
    assert payloads(back) == messages
    cluster.check_health()
    cluster.close()
