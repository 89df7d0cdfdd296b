"""A store that fails: what is refused, what is let go, and how the broker comes back."""

from __future__ import annotations

import pytest

from perdure.errors import StorageFull, StorageUnavailable
from perdure.model import Will
from perdure.mqtt.packets import PUBACK, PUBREC, Ack, Connack, Disconnect, Properties, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim

FULL = Properties(reason_string="the broker's storage is full")
AWAY = Properties(reason_string="storage is not available")


def _fail(sim: SimBroker, *, forgets: bool = False, sync: bool = False) -> None:
    if sync:
        sim.store.sync_error = StorageUnavailable("broken")
        sim.store.forgets = forgets
    else:
        sim.store.write_error = StorageFull("full")


def _heal(sim: SimBroker) -> None:
    sim.store.heal()
    sim.run_for(3_000_000)
    assert sim.live.services.committer.writable


@pytest.mark.trap(35)
def test_a_full_disk_refuses_publishes_and_says_so() -> None:
    """Trap 35: refused with 0x97 as long as it lasts; QoS 0 goes on; then all is well."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    _fail(sim)
    first = publisher.publish("t", b"refused", qos=1)
    assert publisher.take(Ack) == Ack(PUBACK, first, 0x97, FULL)
    second = publisher.publish("t", b"refused", qos=2)
    assert publisher.take(Ack) == Ack(PUBREC, second, 0x97, FULL)
    sim.run_for(2_500_000)
    third = publisher.publish("t", b"refused", qos=1)
    assert publisher.take(Ack) == Ack(PUBACK, third, 0x97, FULL)
    late = Client(sim, "late")
    late.connect(expiry_s=0, clean=True)
    fourth = late.publish("t", b"refused", qos=1)
    assert late.take(Ack) == Ack(PUBACK, fourth, 0x97, FULL)
    publisher.publish("t", b"qos 0", qos=0)
    assert reader.payloads() == [b"qos 0"]
    assert [values["code"] for values in sim.logged("storage.failed")] == ["storage_full"]
    assert sim.live.services.metrics.messages_dropped_quota == 4
    _heal(sim)
    assert sim.logged("storage.recovered")
    publisher.publish("t", b"taken", qos=2, packet_id=second)
    assert publisher.take(Ack) == Ack(PUBREC, second)
    assert reader.payloads() == [b"taken"]


@pytest.mark.trap(35)
def test_a_broken_disk_refuses_publishes_with_another_code() -> None:
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    sim.store.write_error = StorageUnavailable("broken")
    for _ in range(3):
        packet_id = publisher.publish("t", qos=1)
        assert publisher.take(Ack) == Ack(PUBACK, packet_id, 0x80, AWAY)
    assert sim.live.services.metrics.messages_dropped_quota == 0


def test_no_reason_string_for_a_client_that_wants_none() -> None:
    """[MQTT-3.1.2-29]: only CONNACK, PUBLISH and DISCONNECT may carry one then."""
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True, problem_information=False)
    _fail(sim)
    for _ in range(2):
        packet_id = publisher.publish("t", qos=1)
        assert publisher.take(Ack) == Ack(PUBACK, packet_id, 0x97)


def test_messages_of_the_commit_that_meets_the_full_disk_are_all_told() -> None:
    """Also one that the client may not publish, in its place among them."""
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    _fail(sim)
    first = publisher.publish("t", qos=1)
    denied = publisher.publish("$SYS/x", qos=2)
    last = publisher.publish("t", qos=2)
    sim.run_for(10_000)
    assert [packet for packet in publisher.received if isinstance(packet, Ack)] == [
        Ack(PUBACK, first, 0x97, FULL),
        Ack(PUBREC, denied, 0x87),
        Ack(PUBREC, last, 0x97, FULL),
    ]
    assert not publisher.is_lost


@pytest.mark.trap(35)
def test_a_311_publisher_is_disconnected() -> None:
    sim = make_sim()
    publisher = Client(sim, "p", version=4)
    publisher.connect()
    _fail(sim)
    publisher.publish("t")
    sim.run_for(50_000)
    assert publisher.is_lost
    assert not publisher.received
    closed = sim.logged("connection.closed")[-1]
    assert closed["reason"] == "0x97 the broker's storage is full"
    late = Client(sim, "q", version=4)
    late.connect(clean=True)
    late.publish("t")
    sim.run_for(50_000)
    assert late.is_lost


def test_a_failed_sync_leaves_the_exchange_open() -> None:
    """In doubt: an error would end the exchange, so the connection ends instead."""
    sim = make_sim()
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    _fail(sim, sync=True)
    publisher.publish("t")
    sim.run_for(50_000)
    assert publisher.is_lost
    assert publisher.take(Disconnect).reason == 0x80
    assert not [packet for packet in publisher.received if isinstance(packet, Ack)]


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.trap(3)
def test_after_a_failed_sync_durable_sessions_go_on_from_the_store(forgets: bool) -> None:
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t")
    publisher.deliver("t", b"safe", qos=2)
    first = reader.take(Publish)
    _fail(sim, sync=True, forgets=forgets)
    publisher.publish("t", b"in doubt", qos=1)
    sim.run_for(50_000)
    assert reader.is_lost
    _heal(sim)
    assert reader.connect().session_present
    again = reader.take(Publish)
    assert (again.payload, again.packet_id, again.dup) == (b"safe", first.packet_id, True)
    assert reader.payloads() == ([] if forgets else [b"in doubt"])


def test_nothing_is_answered_that_could_not_be_written() -> None:
    """PUBREL tells that the PUBREC is durable; without a store it is not."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t")
    publisher.deliver("t", b"one", qos=2)
    message = reader.take(Publish)
    _fail(sim)
    publisher.publish("t", b"refused")
    sim.run_for(10_000)
    reader.send(Ack(PUBREC, message.packet_id))
    sim.run_for(50_000)
    assert not [packet for packet in reader.received if isinstance(packet, Ack)]
    assert reader.is_lost
    _heal(sim)
    sim.kill(power=True)
    sim.start()
    reader.acks = True
    reader.connect()
    again = reader.take(Publish)
    assert (again.packet_id, again.dup) == (message.packet_id, True)


def test_connections_that_went_meanwhile_are_offline_afterwards() -> None:
    """Their wills are published, their expiry begins."""
    sim = make_sim()
    watcher, gone = Client(sim, "w"), Client(sim, "g")
    watcher.connect(expiry_s=0, clean=True)
    watcher.subscribe("will")
    gone.connect(expiry_s=60, will=Will("will", b"bye", 1))
    _fail(sim)
    watcher.publish("t")
    gone.cut()
    watcher.none_comes(Publish)
    _heal(sim)
    assert watcher.payloads() == [b"bye"]
    sim.run_for(61_000_000)
    assert sim.logged("session.expired")
    assert not gone.connect().session_present


def test_a_retained_feed_goes_on_from_the_store() -> None:
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    for number in range(600):
        publisher.publish(f"r/{number}", b"%d" % number, retain=True)
    sim.run_for(100_000)
    sim.store.die_in = -1
    reader.subscribe("r/#")
    writes = sim.store.write_count
    sim.run_until(lambda: sim.store.write_count > writes)
    _fail(sim)
    sim.run_for(100_000)
    _heal(sim)
    seen = {message.payload for message in reader.messages}
    reader.connect()
    sim.run_for(500_000)
    seen |= {message.payload for message in reader.messages}
    assert seen == {b"%d" % number for number in range(600)}


def test_a_refused_connection_tells_why() -> None:
    sim = make_sim()
    other = Client(sim, "o")
    other.connect(expiry_s=0, clean=True)
    _fail(sim)
    other.publish("t")
    sim.run_for(10_000)
    assert Client(sim, "c").connect().reason == 0x88
    assert Client(sim, "c4", version=4).connect().reason == 3


def test_an_orderly_stop_keeps_everything() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(will=Will("w", b""))
    client.subscribe("t", properties=Properties(subscription_identifiers=(7,)))
    sim.stop()
    assert client.take(Disconnect).reason == 0x8B
    sim.start()
    assert client.connect().session_present
    client.publish("t")
    assert client.take(Publish).identifiers == (7,)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x88)])
def test_a_connect_that_meets_the_failure_is_told(version: int, code: int, sync: bool) -> None:
    sim = make_sim()
    _fail(sim, sync=sync)
    client = Client(sim, "c", version=version)
    client.connect(wait=False)
    assert client.take(Connack).reason == code
    sim.run_for(1_000)
    assert client.is_lost
