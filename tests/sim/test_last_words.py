"""What a client says to a node before it goes to another one counts there, as on one broker."""

from __future__ import annotations

import itertools

import pytest

from perdure.broker.sessions.claims import HANDOVER_US
from perdure.model import Message
from perdure.mqtt.packets import Ack, Disconnect, Publish
from tests.support.ordered_log import OrderedLog
from tests.support.sim_broker import SimBroker
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


@pytest.mark.parametrize("seed", range(4))
def test_what_a_node_says_for_the_next_owner_counts_on_all_nodes(seed: int) -> None:
    """Though the batch that it says it in has what came too late, for the one before."""
    cluster = VirtualCluster(Options(), seed=seed)
    cluster.start()
    first, second, third = cluster.nodes
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("t", qos=1)
    Client(first, "c").connect(expiry_s=600)
    before = owner_epoch(first, "c")
    assert Client(second, "c").connect(expiry_s=600).session_present
    first.run_for(100_000)
    assert first.broker is not None
    core = first.broker.services
    batch = core.committer.batch
    for epoch in (before, owner_epoch(first, "c")):
        batch.speak("c", epoch=epoch)
        for recorded in (True, False):
            said = Message("t", b"%d" % (epoch > before), int(recorded), False, "c")
            if recorded:
                batch.append(said)
            else:
                batch.pass_on(said)
            core.pipeline.dispatch(said)
    core.pipeline.schedule()
    first.run_for(1_000_000)
    assert [each.payload for each in watcher.messages] == [b"1", b"1"]
    cluster.check_health()
    cluster.close()


def owner_epoch(node: SimBroker, client_id: str) -> int:
    """Of the owner of a session, as a node knows it."""
    found = node.store.replica.view.local.owner_epoch(client_id)  # type: ignore[attr-defined]
    assert isinstance(found, int)
    return found


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


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_last_words_of_many_batches_keep_their_order(batches: int, is_gone: bool) -> None:
    """All of them are on their way when the log stands still, and behind the claim when it goes
    on: each comes back by itself, to be said again."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    log: OrderedLog = first.store.log  # type: ignore[attr-defined]
    end = first.store.replica.end  # type: ignore[attr-defined]
    loop = first.loop
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("t", qos=1)
    leaving = Client(first, "c")
    leaving.connect(expiry_s=600)
    first.run_for(100_000)
    end.is_cut = True
    for number in range(batches + 1):
        leaving.publish("t", b"%d" % number)
        first.run_for(1_000)
        if number < batches:
            # Who comes has the open batch submitted.
            Client(first, f"other-{number}").connect(wait=False)
            first.run_for(1_000)
    if is_gone:
        assert leaving.wire is not None
        leaving.wire.hang_up()
        first.run_for(1_000)

    def go_on() -> None:
        end.is_cut = False
        log.sequence_all()

    loop.call_later(HANDOVER_US // 4, go_on)
    assert Client(second, "c").connect(expiry_s=600).session_present
    first.run_for(1_000_000)
    found = [each.payload for each in watcher.messages]
    assert found == [b"%d" % number for number in range(batches + 1)]
    cluster.check_health()
    cluster.close()


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_last_words_keep_their_order_at_a_node_that_goes_on(batches: int, is_gone: bool) -> None:
    """Whoever comes to it has its open batch submitted, with words that were said again in it,
    while others are still on their way back."""
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first, second, third = cluster.nodes
    log: OrderedLog = first.store.log  # type: ignore[attr-defined]
    end = first.store.replica.end  # type: ignore[attr-defined]
    loop = first.loop
    watcher = Client(third, "watcher")
    watcher.connect()
    watcher.subscribe("t", qos=1)
    leaving = Client(first, "c")
    leaving.connect(expiry_s=600)
    first.run_for(100_000)
    end.is_cut = True
    said, numbers = 0, itertools.count()

    def say() -> None:
        nonlocal said
        leaving.publish("t", b"%d" % said)
        said += 1

    def somebody_comes() -> None:
        Client(first, f"other-{next(numbers)}").connect(wait=False)

    for _ in range(batches):
        say()
        first.run_for(1_000)
        somebody_comes()
        first.run_for(1_000)
    say()
    first.run_for(1_000)
    if is_gone:
        assert leaving.wire is not None
        leaving.wire.hang_up()
        first.run_for(1_000)

    def enter() -> None:
        """Everything is in the log; the node is given one record after the other."""
        end.is_cut = False
        while log.shared.take_one():
            pass
        end.is_cut = True
        log.shared.read_all()
        read_one()

    def read_one() -> None:
        if not end.read(1):
            end.is_cut = False
            log.sequence_all()
            return
        if not is_gone and said < batches + 3:
            say()
        loop.call_later(200, somebody_comes)
        loop.call_later(700, read_one)

    loop.call_later(HANDOVER_US // 4, enter)
    assert Client(second, "c").connect(expiry_s=600).session_present
    first.run_for(1_000_000)
    found = [each.payload for each in watcher.messages]
    # What it sends when it is let go of is not taken.
    assert found == [b"%d" % number for number in range(max(len(found), batches + 1))]
    cluster.check_health()
    cluster.close()
