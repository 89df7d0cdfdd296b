"""Who is handed what, and when: QoS 1 once written, QoS 2 once synced, all in log order."""

from __future__ import annotations

import pytest
from tests.unit.broker.harness import QUIET, Client, make_world, stalled_world

from perdure.config.schema import Config, StorageConfig
from perdure.mqtt.packets import Ack, Publish


def test_a_qos_2_message_waits_for_its_sync_and_what_follows_waits_with_it() -> None:
    world = stalled_world(durability="os")
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    publisher.publish("t", b"1", qos=1)
    publisher.publish("t", b"2", qos=2)
    publisher.publish("t", b"3", qos=1)
    assert reader.payloads(within_us=5_000_000) == [b"1"]


def test_a_power_cut_takes_no_qos_2_message_back() -> None:
    """It was never handed over, so its publisher may send it again."""
    world = stalled_world(durability="os")
    publisher, reader = Client(world, "p"), Client(world, "r")
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    publisher.connect(expiry_s=0, clean=True)
    publisher.publish("t", b"x", qos=2)
    world.run_for(10_000)
    world.kill(power=True)
    world.start()
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t")
    publisher.connect(expiry_s=0, clean=True)
    publisher.publish("t", b"x", qos=2, packet_id=1, dup=True)
    world.run_for(50_000)
    assert [message.payload for message in reader.messages] == [b"x"]


def test_a_qos_2_delivery_comes_before_its_pubrec() -> None:
    world = make_world()
    client = Client(world, "c", acks=False)
    client.connect()
    client.subscribe("t", qos=1)
    client.publish("t", qos=2)
    world.run_for(50_000)
    kinds = [type(packet) for packet in client.received if not isinstance(packet, int)]
    assert kinds == [Publish, Ack]


@pytest.mark.trap(51)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_right_after_suback_arrives(qos: int) -> None:
    """Trap 51: the subscription is in effect before its SUBACK."""
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    for number in range(20):
        reader.connect(expiry_s=1000 * (number % 2), clean=True)
        reader.subscribe(f"t/{number}")
        publisher.publish(f"t/{number}", b"%d" % number, qos=qos)
        assert reader.take(Publish).payload == b"%d" % number


def test_overlapping_subscriptions_bring_one_copy() -> None:
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t/#", qos=0)
    reader.subscribe("t/+", qos=2)
    reader.subscribe("t/a", qos=1)
    publisher.deliver("t/a", b"x", qos=2)
    world.run_for(100_000)
    assert [(m.payload, m.qos) for m in reader.messages] == [(b"x", 2)]


@pytest.mark.trap(53)
def test_a_retained_message_that_was_replaced_is_the_new_one() -> None:
    """Trap 53: also through a restart."""
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect()
    publisher.deliver("t", b"old", qos=1, retain=True)
    publisher.deliver("t", b"new", qos=2, retain=True)
    reader.connect()
    reader.subscribe("t")
    assert reader.payloads() == [b"new"]
    world.kill(power=True)
    world.start()
    reader.connect(clean=True)
    reader.subscribe("t")
    assert reader.payloads() == [b"new"]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_reaches_a_session_in_memory(qos: int, granted: int) -> None:
    """A QoS 2 delivery that is stored nowhere waits for no sync."""
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"kept", qos=qos, retain=True)
    world.run_for(100_000)
    reader.connect(expiry_s=0, clean=True)
    reader.subscribe("t", qos=granted)
    assert reader.payloads() == [b"kept"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_that_is_not_recorded_comes_once(qos: int) -> None:
    """The fence passes its offset, so a later subscription finds it on the right side."""
    world = make_world(config=Config(sys=QUIET, storage=StorageConfig(record=("other/#",))))
    publisher, reader = Client(world, "p"), Client(world, "r")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"kept", qos=qos, retain=True)
    world.run_for(100_000)
    reader.connect()
    reader.subscribe("t", qos=2)
    assert reader.payloads() == [b"kept"]


@pytest.mark.trap(16)
def test_a_qos_2_subscription_lives_on_after_a_restart() -> None:
    """Trap 16: it gets what is published before its client is back, and after."""
    world = make_world()
    publisher, reader = Client(world, "p"), Client(world, "r")
    reader.connect()
    reader.subscribe("t")
    world.kill(power=True)
    world.start()
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"before", qos=2)
    reader.connect()
    publisher.deliver("t", b"after", qos=2)
    assert reader.payloads() == [b"before", b"after"]
