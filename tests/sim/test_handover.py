"""A client comes to another node: its will comes once, DUP is on what may have been sent."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from perdure.broker.sessions.claims import HANDOVER_US
from perdure.model import Will
from perdure.mqtt.packets import Disconnect, Properties, Publish
from tests.support.ordered_log import OrderedLog
from tests.support.sim_broker import SimBroker
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


@pytest.mark.parametrize("expiry_s", [0, 600])
@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("records_at_once", [0, 1])
@pytest.mark.parametrize("paused_us", [HANDOVER_US // 2, HANDOVER_US + 1_000, 4 * HANDOVER_US])
def test_a_node_that_stands_still_answers_only_who_has_asked_it(
    paused_us: int, records_at_once: int, is_gone: bool, expiry_s: int
) -> None:
    """It reads the claim and all that the new owner has done without it with what it has said
    itself still on its way: a will that it has not said by then is not its to say."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    log: OrderedLog = first.store.log  # type: ignore[attr-defined]
    end = first.store.replica.end  # type: ignore[attr-defined]
    loop = first.loop

    def read_later(read: Callable[[], object]) -> object:
        of_first = isinstance(read, functools.partial) and end in read.args
        return None if of_first and end.is_cut else loop.call_later(200, read)

    log.read_later = read_later
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("will", qos=2)
    client = Client(first, "c")
    client.connect(will=Will("will", b"gone", 1, False), expiry_s=expiry_s)
    end.is_cut = True
    if is_gone:
        assert client.wire is not None
        client.wire.hang_up()
        first.run_for(1_000)

    def go_on() -> None:
        if end.read(limit=records_at_once) and records_at_once:
            # Its connection waits for a batch: what was said up to here goes into one of its own.
            Client(first, f"other-{end.lag}").connect(wait=False)
            loop.call_later(200, go_on)
        else:
            end.is_cut = False
            log.sequence_all()

    loop.call_later(paused_us, go_on)
    moved = Client(second, "c")
    moved.connect(clean=not expiry_s, will=Will("will", b"next", 1, False), expiry_s=expiry_s)
    first.run_for(6 * HANDOVER_US)
    found = [each.payload for each in watcher.received if isinstance(each, Publish)]
    assert found == [b"gone"]
    cluster.check_health()
    cluster.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_will_outlives_a_node_that_hears_of_the_claim_while_its_client_goes(seed: int) -> None:
    """What it has said then, the will too, is refused if the claim comes first in the log."""
    cluster = VirtualCluster(Options(), seed=seed)
    cluster.start()
    first, second, third = cluster.nodes
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("will", qos=2)
    leaving = Client(first, "c")
    leaving.connect(will=Will("will", b"gone", 1, False), expiry_s=600)
    assert leaving.wire is not None
    leaving.wire.hang_up()
    assert Client(second, "c").connect(expiry_s=600).session_present
    first.run_for(3_000_000)
    assert [each.payload for each in watcher.received if isinstance(each, Publish)] == [b"gone"]
    cluster.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_session_that_its_client_has_ended_is_not_resumed_elsewhere(seed: int) -> None:
    """Its end is refused if the claim comes first in the log, and is said again."""
    cluster = VirtualCluster(Options(), seed=seed)
    cluster.start()
    first, second, third = cluster.nodes
    leaving = Client(first, "c")
    leaving.connect(expiry_s=600)
    leaving.subscribe("t", qos=1)
    leaving.send(Disconnect(0, Properties(session_expiry_interval=0)))
    back = Client(second, "c")
    assert not back.connect(expiry_s=600).session_present
    publisher = Client(third, "publisher")
    publisher.connect()
    publisher.deliver("t")
    first.run_for(1_000_000)
    assert back.messages == []
    assert Client(third, "c").connect(expiry_s=600).session_present
    cluster.check_health()
    cluster.close()


def owed(cluster: VirtualCluster, node: SimBroker, count: int) -> Client:
    """A client with room for two messages that is sent so many, and acknowledges none."""
    client = Client(node, "c", acks=False)
    client.connect(expiry_s=600, receive_maximum=2)
    client.subscribe("t", qos=1)
    publisher = Client(cluster.nodes[2], "publisher")
    publisher.connect()
    for number in range(count):
        publisher.deliver("t", b"%d" % number)
    node.run_for(1_000_000)
    return client


def received(client: Client, node: SimBroker, *, room: int) -> list[tuple[bytes, bool]]:
    """What a client gets that comes back, with its DUP; it has room for all or for the first."""
    assert client.connect(expiry_s=600, receive_maximum=room).session_present
    node.run_for(1_000_000)
    return [(each.payload, each.dup) for each in client.messages]


def test_what_no_node_has_sent_comes_without_dup() -> None:
    """The node before says up to where it has sent."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    assert len(owed(cluster, first, 4).messages) == 2
    found = received(Client(second, "c", acks=False), second, room=9)
    assert found == [(b"0", True), (b"1", True), (b"2", False), (b"3", False)]
    cluster.close()


def test_what_a_dead_node_may_have_sent_keeps_its_dup_on_the_way_to_a_third_one() -> None:
    """The second node sends but one of them, and hands the rest of the doubt over."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    owed(cluster, first, 4)
    first.kill()
    first.start()
    assert received(Client(second, "c", acks=False), second, room=1) == [(b"0", True)]
    found = received(Client(third, "c", acks=False), third, room=9)
    assert found == [(b"%d" % number, True) for number in range(4)]
    cluster.close()


def test_a_node_that_says_nothing_may_have_sent_everything() -> None:
    """It is late: nobody waits for it for long."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, _ = cluster.nodes
    owed(cluster, first, 4)
    log: OrderedLog = first.store.log  # type: ignore[attr-defined]

    def read_later(read: Callable[[], object]) -> object:
        of_first = isinstance(read, functools.partial) and first.store.replica.end in read.args  # type: ignore[attr-defined]
        return first.loop.call_later(2 * HANDOVER_US if of_first else 200, read)

    log.read_later = read_later
    found = received(Client(second, "c", acks=False), second, room=9)
    assert found == [(b"%d" % number, True) for number in range(4)]
    cluster.close()
