"""A session while a connection holds it: what is sent, skipped and settled."""

from __future__ import annotations

import pytest

from perdure.broker.auth.authorize import Identity
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import NO_DELAY, Client, make_sim


class Rules:
    """Forbids delivery of some topics."""

    allow_all = False
    generation = 0

    def __init__(self) -> None:
        self.forbidden: set[str] = set()

    def publish(self, identity: Identity, topic: str) -> bool:
        return True

    def subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True

    def deliver(self, identity: Identity, topic: str, publisher: str = "") -> bool:
        return topic not in self.forbidden

    def mute(self, publishers: frozenset[str]) -> None:
        assert not publishers

    def mutes(self, publisher: str) -> bool:
        return False


def _ruled() -> tuple[SimBroker, Rules]:
    rules = Rules()
    sim = SimBroker(authorizer=rules, network_profile=NO_DELAY)
    sim.start()
    return sim, rules


@pytest.mark.trap(54)
def test_rules_hold_for_what_was_queued_before_they_changed() -> None:
    """Trap 54: checked again on the way out; identifiers of the rest do not move."""
    sim, rules = _ruled()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("#", qos=1)
    reader.disconnect()
    for topic in ("a", "secret", "b"):
        publisher.deliver(topic, topic.encode())
    rules.forbidden.add("secret")
    reader.connect()
    sim.run_for(100_000)
    assert [(m.payload, m.packet_id) for m in reader.messages] == [(b"a", 1), (b"b", 3)]
    assert sim.live.services.metrics.messages_dropped_not_authorized == 1


@pytest.mark.trap(13)
@pytest.mark.parametrize("why", ["forbidden", "expired"])
def test_an_exchange_past_its_pubrec_is_completed(why: str) -> None:
    """Trap 13: it is session state, whatever has become of the message."""
    sim, rules = _ruled()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t")
    publisher.deliver("t", qos=2, expiry_s=5)
    packet_id = reader.take(Publish).packet_id
    reader.send(Ack(PUBREC, packet_id))
    assert reader.take(Ack) == Ack(PUBREL, packet_id)
    reader.cut()
    if why == "forbidden":
        rules.forbidden.add("t")
    else:
        sim.run_for(10_000_000)
    reader.connect()
    assert reader.take(Ack) == Ack(PUBREL, packet_id)
    reader.send(Ack(PUBCOMP, packet_id))
    sim.run_for(50_000)
    assert sim.live.services.registry.live["r"].outbound.is_idle()


@pytest.mark.trap(18)
def test_a_lowered_subscription_goes_on() -> None:
    """Trap 18: messages of both QoS in flight, none is stuck, none is lost."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect(receive_maximum=2)
    reader.subscribe("t", qos=1)
    for number in range(4):
        publisher.deliver("t", b"%d" % number)
    reader.subscribe("t", qos=0)
    for number in range(4, 6):
        publisher.deliver("t", b"%d" % number)
    for _ in range(4):
        message = next(m for m in reader.received if isinstance(m, Publish) and m.qos)
        reader.received.remove(message)
        reader.send(Ack(PUBACK, message.packet_id))
        sim.run_for(10_000)
    assert sorted(m.payload for m in reader.messages) == [b"%d" % n for n in range(6)]
    assert sim.live.services.registry.live["r"].outbound.is_idle()


def test_a_message_too_large_for_its_client_is_settled() -> None:
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    session = sim.live.services.registry.live["r"]
    session.sender.packet_size_max = 50
    publisher.deliver("t", b"x" * 100)
    publisher.deliver("t", b"fits")
    message = reader.take(Publish)
    assert (message.payload, message.packet_id) == (b"fits", 2)
    sim.run_for(10_000)
    assert session.outbound.is_idle()
    assert sim.live.services.metrics.messages_dropped_too_large == 1


@pytest.mark.trap(20)
def test_the_cursor_says_no_more_than_was_acknowledged() -> None:
    """Trap 20: what is unacknowledged comes again after any end of the broker."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    reader.connect()
    reader.subscribe("t", qos=1)
    for number in range(5):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(10_000)
    for message in reader.messages[3:]:
        reader.send(Ack(PUBACK, message.packet_id))
    sim.run_for(10_000)
    sim.stop()
    sim.start()
    reader.messages.clear()
    reader.connect()
    sim.run_for(100_000)
    assert [(m.payload, m.packet_id) for m in reader.messages] == [
        (b"0", 1),
        (b"1", 2),
        (b"2", 3),
    ]
