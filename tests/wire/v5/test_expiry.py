"""MQTT 5.0, section 3.3.2.3.3: Message Expiry Interval.

Mosquitto takes an interval of 0 for none, sends what has expired behind a full window
[MQTT-3.3.2-5], drops an exchange past PUBREC whose message expired, and loses sessions at a kill.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop
from tests.wire.peer import Peer


def offline_subscriber(broker: Broker, name: str, qos: int = 1) -> None:
    """A durable session with one subscription and no connection."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/#", qos))
    subscriber.disconnect()


def resume(broker: Broker, name: str, *properties: tuple[int, int]) -> Peer:
    """The subscriber's next connection."""
    return broker.connect(
        f"{name}-subscriber", clean=False, expiry=60, properties=properties, session_present=True
    )


@pytest.mark.spec("MQTT-3.3.2-6")
@pytest.mark.parametrize("interval", [1, 10, 100, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_interval_of_a_live_message(broker: Broker, name: str, interval: int, qos: int) -> None:
    """Received minus the time that it waited, which is less than a second here."""
    peer = broker.connect(name)
    peer.subscribe(f"{name}/t")
    peer.publish(f"{name}/t", b"x", qos=qos, properties=[(Prop.MESSAGE_EXPIRY, interval)])
    found = peer.receive_publish(f"{name}/t", b"x", qos=qos)
    assert found.get(Prop.MESSAGE_EXPIRY) in (interval, interval - 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_interval_stays_none(broker: Broker, name: str, qos: int) -> None:
    peer = broker.connect(name)
    peer.subscribe(f"{name}/t")
    peer.publish(f"{name}/t", b"x", qos=qos)
    assert peer.receive_publish(f"{name}/t", b"x").get(Prop.MESSAGE_EXPIRY) is None


@pytest.mark.parametrize("qos", [1, 2])
def test_interval_of_zero_with_a_live_subscriber(broker: Broker, name: str, qos: int) -> None:
    """It has passed at once: the message is delivered with what is left, 0, or not at all."""
    peer = broker.connect(name)
    peer.subscribe(f"{name}/#")
    peer.publish(f"{name}/t", b"x", qos=qos, properties=[(Prop.MESSAGE_EXPIRY, 0)])
    peer.publish(f"{name}/u", b"control", qos=qos)
    found = peer.take_publish()
    if found.payload == b"x":
        assert found.get(Prop.MESSAGE_EXPIRY) == 0
        found = peer.take_publish()
    assert found.payload == b"control"


@pytest.mark.virtual
@pytest.mark.spec("MQTT-3.3.2-5")
@pytest.mark.spec("MQTT-3.3.2-6")
@pytest.mark.trap(23)
@pytest.mark.parametrize("qos", [1, 2])
def test_expired_messages_do_not_block_the_queue(broker: Broker, name: str, qos: int) -> None:
    """At the head, in the middle and at the end; the rest comes with what is left of theirs."""
    offline_subscriber(broker, name, qos)
    publisher = broker.connect(name)
    for index, interval in enumerate([1, 1, 100, 1, None, 1, 50, 1]):
        properties = [] if interval is None else [(Prop.MESSAGE_EXPIRY, interval)]
        publisher.publish(f"{name}/t", b"%d" % index, qos=qos, properties=properties)
    broker.elapse(2.2)
    again = resume(broker, name)
    found = again.receive_publish(f"{name}/t", b"2", qos=qos)
    assert found.get(Prop.MESSAGE_EXPIRY) in (96, 97, 98)
    found = again.receive_publish(f"{name}/t", b"4", qos=qos)
    assert found.get(Prop.MESSAGE_EXPIRY) is None
    found = again.receive_publish(f"{name}/t", b"6", qos=qos)
    assert found.get(Prop.MESSAGE_EXPIRY) in (46, 47, 48)
    again.expect_nothing()


@pytest.mark.virtual
@pytest.mark.trap(23)
def test_interval_survives_a_restart(broker: Broker, name: str) -> None:
    """It is stored with the message, not with the process that took it."""
    offline_subscriber(broker, name)
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"short", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{name}/t", b"long", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 100)])
    broker.kill9()
    broker.elapse(1.6)
    again = resume(broker, name)
    found = again.receive_publish(f"{name}/t", b"long", qos=1)
    left = found.get(Prop.MESSAGE_EXPIRY)
    assert isinstance(left, int)
    assert 90 <= left <= 99, "whole seconds of the wait are taken off, and it was more than one"
    again.expect_nothing()


@pytest.mark.virtual
@pytest.mark.spec("MQTT-3.3.2-5")
def test_expiry_behind_a_full_window(broker: Broker, name: str) -> None:
    """A message that expires while the client is connected and slow is not sent."""
    subscriber = broker.connect(name, properties=[(Prop.RECEIVE_MAX, 1)])
    subscriber.subscribe((f"{name}/t", 1))
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"first", qos=1)
    first = subscriber.expect_publish(f"{name}/t", b"first")
    publisher.publish(f"{name}/t", b"short", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{name}/t", b"last", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 60)])
    broker.elapse(2.2)
    subscriber.send(V5.puback(first.packet_id))
    found = subscriber.receive_publish(f"{name}/t", b"last", qos=1)
    assert found.get(Prop.MESSAGE_EXPIRY) in (56, 57, 58)


@pytest.mark.virtual
@pytest.mark.trap(13)
def test_exchange_past_pubrec_does_not_expire(broker: Broker, name: str) -> None:
    """The PUBREL is session state: it is owed although its message's time is over."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 2))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=2, properties=[(Prop.MESSAGE_EXPIRY, 1)])
    found = subscriber.expect_publish(f"{name}/t", b"x")
    subscriber.send(V5.pubrec(found.packet_id))
    subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id)
    subscriber.abort()
    broker.elapse(2.2)
    publisher.publish(f"{name}/t", b"next", qos=2)
    again = resume(broker, name, (Prop.RECEIVE_MAX, 1))
    again.expect_packet(Kind.PUBREL, packet_id=found.packet_id)
    again.send(V5.pubcomp(found.packet_id))
    again.receive_publish(f"{name}/t", b"next", qos=2)


@pytest.mark.virtual
@pytest.mark.spec("MQTT-4.3.3-7")
@pytest.mark.trap(13)
def test_sent_qos2_message_does_not_expire(broker: Broker, name: str) -> None:
    """Once its PUBLISH was sent, expiry no longer applies: it is sent again on resume."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 2))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=2, properties=[(Prop.MESSAGE_EXPIRY, 1)])
    packet_id = subscriber.expect_publish(f"{name}/t", b"x").packet_id
    subscriber.abort()
    broker.elapse(2.2)
    again = resume(broker, name)
    again.receive_publish(f"{name}/t", b"x", qos=2, dup=True, packet_id=packet_id)
    again.expect_nothing()


@pytest.mark.virtual
@pytest.mark.spec("MQTT-4.3.3-13")
def test_inbound_exchange_goes_on_after_the_expiry(broker: Broker, name: str) -> None:
    """The receiver completes the exchange although the message's time is over."""
    peer = broker.connect(name)
    properties = [(Prop.MESSAGE_EXPIRY, 1)]
    peer.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=5, properties=properties))
    peer.expect_packet(Kind.PUBREC, packet_id=5)
    broker.elapse(1.5)
    peer.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=5, dup=True, properties=properties))
    assert peer.expect_packet(Kind.PUBREC, packet_id=5).reason < 0x80
    peer.send(V5.pubrel(5))
    peer.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)


@pytest.mark.virtual
def test_sent_and_unacknowledged_message_may_expire(broker: Broker, name: str) -> None:
    """4.4: it is sent again or dropped, and the queue goes on either way."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 1)])
    subscriber.expect_publish(f"{name}/t", b"x")
    subscriber.abort()
    broker.elapse(2.2)
    publisher.publish(f"{name}/t", b"next", qos=1)
    again = resume(broker, name, (Prop.RECEIVE_MAX, 1))
    found = again.take_publish()
    if found.payload == b"x":
        assert found.get(Prop.MESSAGE_EXPIRY) == 0
        found = again.take_publish()
    assert found.payload == b"next"


def test_expiry_does_not_reach_311(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber", version=4)
    subscriber.subscribe((f"{name}/t", 1))
    broker.connect(name).publish(f"{name}/t", b"x", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 100)])
    subscriber.receive_publish(f"{name}/t", b"x", qos=1)


@pytest.mark.virtual
def test_expiry_holds_for_311_subscribers(broker: Broker, name: str) -> None:
    """A 3.1.1 session does not get what has expired either."""
    subscriber = broker.connect(f"{name}-subscriber", version=4, clean=False)
    subscriber.subscribe((f"{name}/t", 1))
    subscriber.disconnect()
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"short", qos=1, properties=[(Prop.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{name}/t", b"kept", qos=1)
    broker.elapse(2.2)
    again = broker.connect(f"{name}-subscriber", version=4, clean=False, session_present=True)
    again.receive_publish(f"{name}/t", b"kept", qos=1)
    again.expect_nothing()
