"""MQTT 5.0, section 4.3.2 and 4.4: QoS 1 towards a subscriber."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value
from tests.wire.peer import Peer


def pair(broker: Broker, name: str, *, expiry: int = 60) -> tuple[Peer, Peer]:
    """A subscriber at QoS 1 with a durable session, and a publisher."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=expiry)
    subscriber.subscribe((f"{name}/t", 1))
    return subscriber, broker.connect(name)


def resume(broker: Broker, name: str) -> Peer:
    """The subscriber's next connection."""
    return broker.connect(f"{name}-subscriber", clean=False, expiry=60, session_present=True)


@pytest.mark.spec("MQTT-4.4.0-2")
@pytest.mark.parametrize("reason", [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_every_puback_ends_the_exchange(broker: Broker, name: str, reason: int) -> None:
    """4.3.2: with any reason code the message counts as acknowledged."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=1)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=1)
    subscriber.send(V5.puback(found.packet_id, reason))
    subscriber.expect_nothing()
    subscriber.abort()
    resume(broker, name).expect_nothing()


@pytest.mark.parametrize(
    "properties",
    [
        b"\x00",
        [(Prop.REASON_STRING, "fine")],
        [(Prop.USER, ("k", "v")), (Prop.USER, ("k", "v"))],
    ],
    ids=["empty", "reason-string", "user"],
)
def test_puback_with_properties(broker: Broker, name: str, properties: bytes) -> None:
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=1)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=1)
    subscriber.send(V5.ack(Kind.PUBACK, found.packet_id, 0, properties))
    subscriber.expect_nothing()
    subscriber.abort()
    resume(broker, name).expect_nothing()


def test_acknowledgement_twice(broker: Broker, name: str) -> None:
    """The second PUBACK must not free a later message."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"1", qos=1)
    first = subscriber.expect_publish(f"{name}/t", b"1")
    subscriber.send(V5.puback(first.packet_id), V5.puback(first.packet_id))
    publisher.publish(f"{name}/t", b"2", qos=1)
    second = subscriber.expect_publish(f"{name}/t", b"2")
    subscriber.abort()
    resume(broker, name).expect_publish(f"{name}/t", b"2", packet_id=second.packet_id, dup=True)


@pytest.mark.trap(7)
def test_ids_in_flight_are_never_used_again(broker: Broker, name: str) -> None:
    """Messages acknowledged in between must not lead to a number that is still in flight."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"kept", qos=1)
    kept = subscriber.expect_publish(f"{name}/t", b"kept").packet_id
    for index in range(50):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
        found = subscriber.expect_publish(f"{name}/t", b"%d" % index)
        assert found.packet_id != kept
        subscriber.send(V5.puback(found.packet_id))
    subscriber.abort()
    resume(broker, name).expect_publish(f"{name}/t", b"kept", packet_id=kept, dup=True)


@pytest.mark.trap(6)
def test_ids_of_a_burst_differ(broker: Broker, name: str) -> None:
    """Acknowledging at once, so that the window is empty now and then, while others wait."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1))
    subscriber.disconnect()
    publisher = broker.connect(name)
    for index in range(10):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    again = broker.connect(
        f"{name}-subscriber",
        clean=False,
        expiry=60,
        properties=[(Prop.RECEIVE_MAX, 3)],
        session_present=True,
    )
    in_flight: set[int] = set()
    for index in range(10):
        found = again.expect_publish(f"{name}/t", b"%d" % index)
        assert found.packet_id not in in_flight
        in_flight.add(found.packet_id)
        if len(in_flight) == 3:
            again.send(*(V5.puback(packet_id) for packet_id in sorted(in_flight)))
            in_flight.clear()


@pytest.mark.spec("MQTT-4.6.0-1")
def test_new_messages_follow_those_sent_again(broker: Broker, name: str) -> None:
    """[MQTT-4.6.0-1]: first what is repeated, in the original order, then what is new."""
    subscriber, publisher = pair(broker, name)
    for payload in (b"1", b"2"):
        publisher.publish(f"{name}/t", payload, qos=1)
        subscriber.expect_publish(f"{name}/t", payload)
    subscriber.abort()
    publisher.publish(f"{name}/t", b"3", qos=1)
    publisher.publish(f"{name}/t", b"4", qos=1)
    again = resume(broker, name)
    again.expect_publish(f"{name}/t", b"1", dup=True)
    again.expect_publish(f"{name}/t", b"2", dup=True)
    again.expect_publish(f"{name}/t", b"3", dup=False)
    again.expect_publish(f"{name}/t", b"4", dup=False)


def test_message_sent_again_keeps_its_properties(broker: Broker, name: str) -> None:
    subscriber, publisher = pair(broker, name)
    subscriber.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 9)])
    properties: list[tuple[int, Value]] = [
        (Prop.CONTENT_TYPE, "x"),
        (Prop.USER, ("k", "v")),
        (Prop.USER, ("a", "b")),
    ]
    publisher.publish(f"{name}/t", b"x", qos=1, properties=properties)
    first = subscriber.expect_publish(f"{name}/t", b"x")
    subscriber.abort()
    second = resume(broker, name).expect_publish(f"{name}/t", b"x", dup=True)
    assert sorted(second.properties, key=str) == sorted(first.properties, key=str)
    assert second.all(Prop.USER) == [("k", "v"), ("a", "b")]
    assert second.all(Prop.SUBSCRIPTION_ID) == [9]


@pytest.mark.trap(2)
def test_no_stale_state_after_a_clean_start(broker: Broker, name: str) -> None:
    """Persistent, clean, persistent: the third session misses nothing."""
    publisher = broker.connect(name)
    for round_number, clean in enumerate((False, True, False)):
        subscriber = broker.connect(f"{name}-subscriber", clean=clean, expiry=60)
        subscriber.subscribe((f"{name}/t", 1))
        subscriber.disconnect()
        for index in range(3):
            publisher.publish(f"{name}/t", b"%d-%d" % (round_number, index), qos=1)
        subscriber = resume(broker, name)
        for index in range(3):
            subscriber.receive_publish(f"{name}/t", b"%d-%d" % (round_number, index), qos=1)
        subscriber.expect_nothing()
        subscriber.disconnect()


@pytest.mark.trap(18)
def test_downgrade_to_qos0_leaves_nothing_behind(broker: Broker, name: str) -> None:
    """After a resubscription at QoS 0 messages flow on although old ones are in flight."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60, properties=[(Prop.RECEIVE_MAX, 2)])
    subscriber.subscribe((f"{name}/t", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"1", qos=1)
    publisher.publish(f"{name}/t", b"2", qos=1)
    first = subscriber.expect_publish(f"{name}/t", b"1", qos=1)
    second = subscriber.expect_publish(f"{name}/t", b"2", qos=1)
    subscriber.subscribe((f"{name}/t", 0))
    for index in range(10):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
        subscriber.expect_publish(f"{name}/t", b"%d" % index, qos=0)
    subscriber.send(V5.puback(first.packet_id), V5.puback(second.packet_id))
    subscriber.expect_nothing()
    subscriber.abort()
    resume(broker, name).expect_nothing()


def test_puback_that_answers_a_qos1_publish_names_no_error(broker: Broker, name: str) -> None:
    """A subscriber that is not there is 0x10 at most, and an acknowledgement is one packet."""
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/t", b"x", qos=1, packet_id=5))
    found = peer.expect_packet(Kind.PUBACK, packet_id=5)
    assert found.reason in (0, Reason.NO_MATCHING_SUBSCRIBERS)
    peer.expect_nothing()
