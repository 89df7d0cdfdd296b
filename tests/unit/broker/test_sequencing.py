"""What waits for a batch to come back from a log that is elsewhere; whole runs are in tests/sim."""

from __future__ import annotations

import pytest

from perdure.broker.commit.submissions import SUBMITTED_MAX
from perdure.errors import StorageUnavailable
from perdure.mqtt.packets import (
    EMPTY,
    PUBACK,
    PUBREC,
    Ack,
    Connack,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
)
from perdure.mqtt.reason_codes import SESSION_TAKEN_OVER
from perdure.storage.batch import Batch
from tests.contract.values import record
from tests.support.ordered_log import LateDatabase, OrderedLog
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim


def held_sim() -> tuple[SimBroker, LateDatabase, LateDatabase]:
    """A running broker, its store, and another node; the log goes on when the test says so."""
    log = OrderedLog()
    store, other = LateDatabase(log=log), LateDatabase(log=log)
    sim = make_sim(store=store)
    return sim, store, other


def hold(store: LateDatabase) -> None:
    """From now on the log gives nothing back."""
    store.later = None


def let_go(sim: SimBroker, store: LateDatabase) -> None:
    """The log gives back all that it has, and what that causes."""
    for _ in range(3):
        store.sequence_all()
        sim.run_for(20_000)


@pytest.mark.parametrize(("qos", "answer"), [(1, PUBACK), (2, PUBREC)])
def test_a_message_is_answered_and_handed_out_once_it_has_its_place(qos: int, answer: int) -> None:
    sim, store, _ = held_sim()
    publisher, subscriber = Client(sim, "p", acks=False), Client(sim, "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t")
    hold(store)
    packet_id = publisher.publish("t", qos=qos)
    publisher.none_comes(Ack)
    subscriber.none_comes(Publish)
    let_go(sim, store)
    assert publisher.take(Ack) == Ack(answer, packet_id)
    assert subscriber.take(Publish).payload == b"x"


def test_a_subscription_is_acknowledged_once_it_has_its_place() -> None:
    sim, store, _ = held_sim()
    client = Client(sim, "c")
    client.connect()
    hold(store)
    client.send(_subscribe("t"))
    client.none_comes(Suback)
    let_go(sim, store)
    assert client.take(Suback).reasons == [1]


def test_a_subscription_waits_for_what_was_taken_before_it() -> None:
    """The message is not its: it was published first, and has its place first."""
    sim, store, _ = held_sim()
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect()
    client.connect()
    hold(store)
    publisher.publish("t", b"before")
    sim.run_for(1_000)
    client.send(_subscribe("t"))
    sim.run_for(1_000)
    publisher.publish("t", b"after")
    sim.run_for(1_000)
    let_go(sim, store)
    client.take(Suback)
    # ``after`` has gathered until ``before`` came back: its place is behind the subscription.
    assert client.payloads() == [b"after"]


def test_what_a_client_sends_behind_its_subscription_comes_behind_it() -> None:
    """However late the log is, and batches follow each other."""
    sim, store, _ = held_sim()
    client = Client(sim, "c")
    client.connect()
    hold(store)
    client.publish("t", b"before")
    client.send(_subscribe("t"))
    client.publish("t", b"after")
    sim.run_for(100_000)
    let_go(sim, store)
    client.take(Suback)
    assert client.payloads() == [b"after"]


def test_what_comes_gathers_until_the_log_has_given_the_last_back() -> None:
    """One batch for all of it, and nobody waits when nothing is on its way."""
    sim, store, _ = held_sim()
    publisher = Client(sim, "p", acks=False)
    publisher.connect()
    hold(store)
    publisher.publish("t", b"0")
    sim.run_for(1_000)
    assert store.replica.end is not None
    submitted = store.replica.end.waiting
    assert len(submitted) == 1
    for number in range(1, 20):
        publisher.publish("t", b"%d" % number)
        sim.run_for(100)
    assert len(submitted) == 1
    store.sequence_all()
    sim.run_for(1_000)
    assert len(submitted) == 1
    let_go(sim, store)
    assert len(publisher.take_all(Ack)) == 20


def test_behind_what_is_late_the_next_batch_follows() -> None:
    """Else a log that stalls takes its time again for what has gathered meanwhile."""
    sim, store, _ = held_sim()
    publisher = Client(sim, "p", acks=False)
    publisher.connect()
    hold(store)
    count = 0
    counts: list[int] = []
    for _ in range(40):
        publisher.publish("t", b"%d" % count)
        count += 1
        sim.run_for(1_000)
        assert store.replica.end is not None
        counts.append(len(store.replica.end.waiting))
    assert counts[:4] == [1, 1, 1, 1]
    assert max(counts) == SUBMITTED_MAX  # what comes later gathers, however late they are
    let_go(sim, store)
    assert len(publisher.take_all(Ack)) == count


def test_a_batch_that_gathers_when_the_log_is_lost_fails_with_it() -> None:
    """Nothing comes back that could end the gathering."""
    sim, store, _ = held_sim()
    publisher = Client(sim, "p", acks=False)
    publisher.connect()
    hold(store)
    for payload in (b"submitted", b"gathers"):
        publisher.publish("t", payload)
        sim.run_for(1_000)
    committer = sim.live.services.committer
    assert not committer.batch.is_empty()
    committer.lost(StorageUnavailable("Kafka has gone"))
    sim.run_for(5_000)
    assert committer.batch.is_empty()
    assert not publisher.take_all(Ack)


def test_who_comes_again_waits_for_what_the_connection_before_has_left() -> None:
    sim, store, _ = held_sim()
    client, publisher = Client(sim, "c", acks=False), Client(sim, "p")
    publisher.connect()
    client.connect()
    client.subscribe("t")
    publisher.deliver("t", b"one")
    first = client.take(Publish)
    hold(store)
    client.send(Ack(PUBACK, first.packet_id))
    client.disconnect()
    client.connect(wait=False)
    client.none_comes(Connack)
    let_go(sim, store)
    assert client.take(Connack).session_present
    assert client.payloads() == []


def test_an_owner_elsewhere_ends_the_connection_and_nothing_is_acknowledged() -> None:
    sim, store, other = held_sim()
    publisher, neighbour = Client(sim, "p", acks=False), Client(sim, "n", acks=False)
    publisher.connect()
    neighbour.connect()
    hold(store)
    claim = Batch()
    claim.put_session(record("p", epoch=2))
    other.submit(claim, 0)
    store.sequence_all()
    publisher.publish("t", qos=2)
    kept = neighbour.publish("t", qos=2)
    sim.run_for(20_000)
    let_go(sim, store)
    assert publisher.take(Disconnect).reason == SESSION_TAKEN_OVER
    assert not [packet for packet in publisher.received if isinstance(packet, Ack)]
    assert neighbour.take(Ack) == Ack(PUBREC, kept)
    assert sim.logged("session.fenced")
    let_go(sim, store)
    stored = store.inner.state.sessions["p"]
    assert (stored.record.epoch, stored.awaiting_release) == (2, set())
    assert "p" not in sim.live.services.registry.live


def _subscribe(topic_filter: str) -> Subscribe:
    return Subscribe(7, [SubscribeFilter(topic_filter, 1, False, False, 0)], EMPTY)
