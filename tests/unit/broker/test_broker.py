"""A store that fails: what is refused, what is let go, and how the broker comes back."""

from __future__ import annotations

import pytest
from tests.support.world import World
from tests.unit.broker.harness import Client, make_world

from perdure.errors import StorageFull, StorageUnavailable
from perdure.model import Will
from perdure.mqtt.packets import PUBACK, PUBREC, Ack, Connack, Disconnect, Properties, Publish

FULL = Properties(reason_string="the broker's storage is full")
AWAY = Properties(reason_string="storage is not available")


def _fail(world: World, *, forgets: bool = False, sync: bool = False) -> None:
    if sync:
        world.store.sync_error = StorageUnavailable("broken")
        world.store.forgets = forgets
    else:
        world.store.write_error = StorageFull("full")


def _heal(world: World) -> None:
    world.store.heal()
    world.run_for(3_000_000)
    assert world.live.services.committer.writable


@pytest.mark.trap(35)
def test_a_full_disk_refuses_publishes_and_says_so() -> None:
    """Trap 35: refused with 0x97 as long as it lasts; QoS 0 goes on; then all is well."""
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    _fail(world)
    first = publisher.publish("t", b"refused", qos=1)
    assert publisher.take(Ack) == Ack(PUBACK, first, 0x97, FULL)
    second = publisher.publish("t", b"refused", qos=2)
    assert publisher.take(Ack) == Ack(PUBREC, second, 0x97, FULL)
    world.run_for(2_500_000)
    third = publisher.publish("t", b"refused", qos=1)
    assert publisher.take(Ack) == Ack(PUBACK, third, 0x97, FULL)
    late = Client(world, "late")
    late.connect(expiry_s=0, clean=True)
    fourth = late.publish("t", b"refused", qos=1)
    assert late.take(Ack) == Ack(PUBACK, fourth, 0x97, FULL)
    publisher.publish("t", b"qos 0", qos=0)
    assert reader.payloads() == [b"qos 0"]
    assert [values["code"] for values in world.logged("storage.failed")] == ["storage_full"]
    assert world.live.services.metrics.messages_dropped_quota == 4
    _heal(world)
    assert world.logged("storage.recovered")
    publisher.publish("t", b"taken", qos=2, packet_id=second)
    assert publisher.take(Ack) == Ack(PUBREC, second)
    assert reader.payloads() == [b"taken"]


@pytest.mark.trap(35)
def test_a_broken_disk_refuses_publishes_with_another_code() -> None:
    world = make_world()
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    world.store.write_error = StorageUnavailable("broken")
    for _ in range(3):
        packet_id = publisher.publish("t", qos=1)
        assert publisher.take(Ack) == Ack(PUBACK, packet_id, 0x80, AWAY)
    assert world.live.services.metrics.messages_dropped_quota == 0


def test_no_reason_string_for_a_client_that_wants_none() -> None:
    """[MQTT-3.1.2-29]: only CONNACK, PUBLISH and DISCONNECT may carry one then."""
    world = make_world()
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True, problem_information=False)
    _fail(world)
    for _ in range(2):
        packet_id = publisher.publish("t", qos=1)
        assert publisher.take(Ack) == Ack(PUBACK, packet_id, 0x97)


def test_messages_of_the_commit_that_meets_the_full_disk_are_all_told() -> None:
    """Also one that the client may not publish, in its place among them."""
    world = make_world()
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    _fail(world)
    first = publisher.publish("t", qos=1)
    denied = publisher.publish("$SYS/x", qos=2)
    last = publisher.publish("t", qos=2)
    world.run_for(10_000)
    assert [packet for packet in publisher.received if isinstance(packet, Ack)] == [
        Ack(PUBACK, first, 0x97, FULL),
        Ack(PUBREC, denied, 0x87),
        Ack(PUBREC, last, 0x97, FULL),
    ]
    assert not publisher.is_lost


@pytest.mark.trap(35)
def test_a_311_publisher_is_disconnected() -> None:
    world = make_world()
    publisher = Client(world, "p", version=4)
    publisher.connect()
    _fail(world)
    publisher.publish("t")
    world.run_for(50_000)
    assert publisher.is_lost
    assert not publisher.received
    closed = world.logged("connection.closed")[-1]
    assert closed["reason"] == "0x97 the broker's storage is full"
    late = Client(world, "q", version=4)
    late.connect(clean=True)
    late.publish("t")
    world.run_for(50_000)
    assert late.is_lost


def test_a_failed_sync_leaves_the_exchange_open() -> None:
    """In doubt: an error would end the exchange, so the connection ends instead."""
    world = make_world()
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    _fail(world, sync=True)
    publisher.publish("t")
    world.run_for(50_000)
    assert publisher.is_lost
    assert publisher.take(Disconnect).reason == 0x80
    assert not [packet for packet in publisher.received if isinstance(packet, Ack)]


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.trap(3)
def test_after_a_failed_sync_durable_sessions_go_on_from_the_store(forgets: bool) -> None:
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t")
    publisher.deliver("t", b"safe", qos=2)
    first = reader.take(Publish)
    _fail(world, sync=True, forgets=forgets)
    publisher.publish("t", b"in doubt", qos=1)
    world.run_for(50_000)
    assert reader.is_lost
    _heal(world)
    assert reader.connect().session_present
    again = reader.take(Publish)
    assert (again.payload, again.packet_id, again.dup) == (b"safe", first.packet_id, True)
    assert reader.payloads() == ([] if forgets else [b"in doubt"])


def test_nothing_is_answered_that_could_not_be_written() -> None:
    """PUBREL tells that the PUBREC is durable; without a store it is not."""
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t")
    publisher.deliver("t", b"one", qos=2)
    message = reader.take(Publish)
    _fail(world)
    publisher.publish("t", b"refused")
    world.run_for(10_000)
    reader.send(Ack(PUBREC, message.packet_id))
    world.run_for(50_000)
    assert not [packet for packet in reader.received if isinstance(packet, Ack)]
    assert reader.is_lost
    _heal(world)
    world.kill(power=True)
    world.start()
    reader.acks = True
    reader.connect()
    again = reader.take(Publish)
    assert (again.packet_id, again.dup) == (message.packet_id, True)


def test_connections_that_went_meanwhile_are_offline_afterwards() -> None:
    """Their wills are published, their expiry begins."""
    world = make_world()
    watcher, gone = Client(world, "w"), Client(world, "g")
    watcher.connect(expiry_s=0, clean=True)
    watcher.subscribe("will")
    gone.connect(expiry_s=60, will=Will("will", b"bye", 1))
    _fail(world)
    watcher.publish("t")
    gone.cut()
    watcher.none_comes(Publish)
    _heal(world)
    assert watcher.payloads() == [b"bye"]
    world.run_for(61_000_000)
    assert world.logged("session.expired")
    assert not gone.connect().session_present


def test_a_retained_feed_goes_on_from_the_store() -> None:
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    for number in range(600):
        publisher.publish(f"r/{number}", b"%d" % number, retain=True)
    world.run_for(100_000)
    world.store.die_in = -1
    reader.subscribe("r/#")
    writes = world.store.write_count
    world.run_until(lambda: world.store.write_count > writes)
    _fail(world)
    world.run_for(100_000)
    _heal(world)
    seen = {message.payload for message in reader.messages}
    reader.connect()
    world.run_for(500_000)
    seen |= {message.payload for message in reader.messages}
    assert seen == {b"%d" % number for number in range(600)}


def test_a_refused_connection_tells_why() -> None:
    world = make_world()
    other = Client(world, "o")
    other.connect(expiry_s=0, clean=True)
    _fail(world)
    other.publish("t")
    world.run_for(10_000)
    assert Client(world, "c").connect().reason == 0x88
    assert Client(world, "c4", version=4).connect().reason == 3


def test_an_orderly_stop_keeps_everything() -> None:
    world = make_world()
    client = Client(world, "c")
    client.connect(will=Will("w", b""))
    client.subscribe("t", properties=Properties(subscription_identifiers=(7,)))
    world.stop()
    assert client.take(Disconnect).reason == 0x8B
    world.start()
    assert client.connect().session_present
    client.publish("t")
    assert client.take(Publish).identifiers == (7,)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x88)])
def test_a_connect_that_meets_the_failure_is_told(version: int, code: int, sync: bool) -> None:
    world = make_world()
    _fail(world, sync=sync)
    client = Client(world, "c", version=version)
    client.connect(wait=False)
    assert client.take(Connack).reason == code
    world.run_for(1_000)
    assert client.is_lost
