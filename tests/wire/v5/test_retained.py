"""MQTT 5.0, sections 3.3.1.3 and 3.8.3.1: retained messages and the options about them.

Mosquitto sends retained messages to shared subscriptions (4.8.2 says not) and cuts a burst of
them off at its queue limit.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop
from tests.wire.peer import Peer

RETAIN_AS_PUBLISHED = 0x08
SEND_IF_NEW = 0x10
DO_NOT_SEND = 0x20


def retain(broker: Broker, topic: str, payload: bytes, **more: int) -> None:
    """Puts a retained message (or clears it) through a connection of its own."""
    publisher = broker.connect("")
    publisher.publish(topic, payload, qos=more.get("qos", 1), retain=True)
    publisher.disconnect()


def fresh(broker: Broker, name: str) -> Peer:
    """A subscriber with no subscriptions."""
    return broker.connect(f"{name}-subscriber")


def test_replacement_replaces_properties_and_qos(broker: Broker, name: str) -> None:
    publisher = broker.connect(name)
    publisher.publish(
        f"{name}/t", b"1", qos=2, retain=True, properties=[(Prop.CONTENT_TYPE, "old")]
    )
    publisher.publish(f"{name}/t", b"2", qos=1, retain=True)
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 2))
    found = subscriber.receive_publish(f"{name}/t", b"2", qos=1, retain=True)
    assert found.properties == []


def test_zero_length_is_delivered_to_current_subscribers(broker: Broker, name: str) -> None:
    """3.3.1.3: it clears the store, and it is a message like any other."""
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 1 | RETAIN_AS_PUBLISHED))
    retain(broker, f"{name}/t", b"")
    subscriber.receive_publish(f"{name}/t", b"", qos=1, retain=True)


@pytest.mark.spec("MQTT-3.3.1-12")
@pytest.mark.spec("MQTT-3.3.1-13")
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_flag_of_a_live_message(
    broker: Broker, name: str, published: bool, as_published: bool, qos: int
) -> None:
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 2 | (RETAIN_AS_PUBLISHED if as_published else 0)))
    broker.connect(name).publish(f"{name}/t", b"x", qos=qos, retain=published)
    subscriber.receive_publish(f"{name}/t", b"x", retain=published and as_published)
    retain(broker, f"{name}/t", b"")


@pytest.mark.spec("MQTT-3.3.1-9")
@pytest.mark.parametrize("as_published", [0, RETAIN_AS_PUBLISHED])
def test_retain_flag_of_a_stored_message(broker: Broker, name: str, as_published: int) -> None:
    """[MQTT-3.3.1-9] does not depend on Retain As Published."""
    retain(broker, f"{name}/t", b"kept")
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 1 | as_published))
    subscriber.receive_publish(f"{name}/t", b"kept", retain=True)


@pytest.mark.parametrize("as_published", [0, RETAIN_AS_PUBLISHED])
def test_retain_flag_of_an_offline_message(broker: Broker, name: str, as_published: int) -> None:
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1 | as_published))
    subscriber.disconnect()
    retain(broker, f"{name}/t", b"x")
    again = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    again.receive_publish(f"{name}/t", b"x", qos=1, retain=bool(as_published))
    again.expect_nothing()


@pytest.mark.spec("MQTT-3.3.1-9")
@pytest.mark.spec("MQTT-3.3.1-10")
@pytest.mark.spec("MQTT-3.3.1-11")
@pytest.mark.spec("MQTT-3.8.4-4")
@pytest.mark.parametrize(
    ("handling", "first", "second"),
    [
        pytest.param(0x00, True, True, id="send"),
        pytest.param(SEND_IF_NEW, True, False, id="send-if-new"),
        pytest.param(DO_NOT_SEND, False, False, id="do-not-send"),
    ],
)
def test_retain_handling(
    broker: Broker, name: str, handling: int, first: bool, second: bool
) -> None:
    """At a new subscription and at one that exists already."""
    retain(broker, f"{name}/t", b"kept")
    subscriber = fresh(broker, name)
    for sent in (first, second):
        subscriber.subscribe((f"{name}/t", 1 | handling))
        if sent:
            subscriber.receive_publish(f"{name}/t", b"kept", qos=1, retain=True)
        subscriber.expect_nothing()
    broker.connect(name).publish(f"{name}/t", b"live", qos=1)
    subscriber.receive_publish(f"{name}/t", b"live", qos=1, retain=False)


def test_retain_handling_1_after_unsubscribe(broker: Broker, name: str) -> None:
    """The subscription is new again then."""
    retain(broker, f"{name}/t", b"kept")
    subscriber = fresh(broker, name)
    for _ in range(2):
        subscriber.subscribe((f"{name}/t", 1 | SEND_IF_NEW))
        subscriber.receive_publish(f"{name}/t", b"kept", qos=1, retain=True)
        subscriber.unsubscribe(f"{name}/t")


@pytest.mark.trap(52)
def test_retain_handling_1_after_resume(broker: Broker, name: str) -> None:
    """The subscription of the session exists, although this connection did not make it."""
    retain(broker, f"{name}/t", b"kept")
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1 | SEND_IF_NEW))
    subscriber.receive_publish(f"{name}/t", b"kept", qos=1)
    subscriber.disconnect()
    again = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    again.subscribe((f"{name}/t", 1 | SEND_IF_NEW))
    again.expect_nothing()


@pytest.mark.trap(52)
def test_takeover_in_the_middle_of_a_retained_replay(broker: Broker, name: str) -> None:
    """The unacknowledged part comes again, the rest follows, nothing is missing or new."""
    for index in range(10):
        retain(broker, f"{name}/{index}", b"%d" % index)
    first = broker.connect(f"{name}-subscriber", expiry=60, properties=[(Prop.RECEIVE_MAX, 3)])
    first.subscribe((f"{name}/+", 1))
    seen = [first.expect_packet(Kind.PUBLISH) for _ in range(3)]
    first.send(V5.puback(seen[0].packet_id))
    first.fence()
    second = broker.connect(f"{name}-subscriber", clean=False, expiry=60, session_present=True)
    topics = [seen[0].topic]
    for _ in range(9):
        found = second.take_publish()
        assert found.retain
        topics.append(found.topic)
    assert sorted(topics) == [f"{name}/{index}" for index in range(10)]
    second.expect_nothing()


@pytest.mark.trap(41)
def test_retained_is_not_sent_to_shared_subscriptions(broker: Broker, name: str) -> None:
    """4.8.2: no retained messages at the subscription to a share."""
    retain(broker, f"{name}/t", b"kept")
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"$share/g/{name}/t", 1))
    subscriber.expect_nothing()
    broker.connect(name).publish(f"{name}/t", b"live", qos=1)
    subscriber.receive_publish(f"{name}/t", b"live", qos=1, retain=False)


@pytest.mark.trap(24)
def test_burst_of_retained_messages_is_complete(broker: Broker, name: str) -> None:
    """1,200 of them for a slow client: none is cut off by a queue limit."""
    publisher = broker.connect(name)
    count = 1200
    publisher.send(*(V5.publish(f"{name}/{i}", b"%d" % i, retain=True) for i in range(count)))
    publisher.fence()
    subscriber = broker.connect(f"{name}-subscriber", properties=[(Prop.RECEIVE_MAX, 10)])
    subscriber.subscribe((f"{name}/+", 0))
    found = {subscriber.take_publish().topic for _ in range(count)}
    assert len(found) == count
    publisher.send(*(V5.publish(f"{name}/{i}", b"", retain=True) for i in range(count)))
    publisher.fence()


@pytest.mark.trap(24)
def test_burst_of_retained_messages_at_qos1(broker: Broker, name: str) -> None:
    """Bounded by the window, each acknowledged alone, and still complete."""
    publisher = broker.connect(name)
    count = 150
    for index in range(count):
        publisher.publish(f"{name}/{index}", b"x", qos=1, retain=True)
    subscriber = broker.connect(f"{name}-subscriber", properties=[(Prop.RECEIVE_MAX, 2)])
    subscriber.subscribe((f"{name}/+", 1))
    found = {subscriber.take_publish().topic for _ in range(count)}
    assert len(found) == count
    subscriber.expect_nothing()
    publisher.send(*(V5.publish(f"{name}/{i}", b"", retain=True) for i in range(count)))
    publisher.fence()


def test_subscription_identifier_of_a_retained_message(broker: Broker, name: str) -> None:
    """3.3.4: it comes because of this subscription and bears its identifier."""
    retain(broker, f"{name}/t", b"kept")
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 77)])
    found = subscriber.receive_publish(f"{name}/t", b"kept", retain=True)
    assert found.all(Prop.SUBSCRIPTION_ID) == [77]


def test_each_filter_of_a_subscribe_gets_its_retained(broker: Broker, name: str) -> None:
    """3.8.4: several filters are as several SUBSCRIBE packets, in order."""
    retain(broker, f"{name}/a", b"a")
    retain(broker, f"{name}/b", b"b")
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/a", 1), (f"{name}/b", 0 | DO_NOT_SEND), (f"{name}/+", 0))
    found = sorted(
        (message.topic, message.qos) for message in (subscriber.take_publish() for _ in range(3))
    )
    assert found == [(f"{name}/a", 0), (f"{name}/a", 1), (f"{name}/b", 0)]


def test_no_local_and_own_retained_message(broker: Broker, name: str) -> None:
    """3.8.3.1: No Local concerns messages published by the own connection's client id.

    A stored message is sent or not, but the one that another client stored comes.
    """
    retain(broker, f"{name}/t", b"of another")
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 1 | 0x04))
    subscriber.receive_publish(f"{name}/t", b"of another", qos=1, retain=True)


@pytest.mark.virtual
@pytest.mark.spec("MQTT-3.3.2-5")
def test_retained_message_expires(broker: Broker, name: str) -> None:
    publisher = broker.connect(name)
    publisher.publish(
        f"{name}/t", b"short", qos=1, retain=True, properties=[(Prop.MESSAGE_EXPIRY, 1)]
    )
    publisher.publish(
        f"{name}/u", b"long", qos=1, retain=True, properties=[(Prop.MESSAGE_EXPIRY, 100)]
    )
    broker.elapse(2.2)
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/+", 1))
    found = subscriber.receive_publish(f"{name}/u", b"long", retain=True)
    left = found.get(Prop.MESSAGE_EXPIRY)
    assert isinstance(left, int)
    assert 96 <= left <= 98
    subscriber.expect_nothing()


def test_retained_of_311_for_50(broker: Broker, name: str) -> None:
    publisher = broker.connect(name, version=4)
    publisher.publish(f"{name}/t", b"old", qos=1, retain=True)
    subscriber = fresh(broker, name)
    subscriber.subscribe((f"{name}/t", 2))
    found = subscriber.receive_publish(f"{name}/t", b"old", qos=1, retain=True)
    assert found.properties == []


def test_retained_of_50_for_311(broker: Broker, name: str) -> None:
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=1, retain=True, properties=[(Prop.USER, ("k", "v"))])
    subscriber = broker.connect(f"{name}-subscriber", version=4)
    subscriber.subscribe((f"{name}/t", 2))
    subscriber.receive_publish(f"{name}/t", b"x", qos=1, retain=True)


def test_retained_is_dup_0_first_and_dup_1_again(broker: Broker, name: str) -> None:
    retain(broker, f"{name}/t", b"kept")
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1))
    first = subscriber.expect_publish(f"{name}/t", b"kept", dup=False, retain=True)
    subscriber.abort()
    retain(broker, f"{name}/t", b"replaced meanwhile")
    again = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    again.expect_publish(f"{name}/t", b"kept", dup=True, retain=True, packet_id=first.packet_id)
