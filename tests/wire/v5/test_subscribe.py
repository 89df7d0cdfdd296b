"""MQTT 5.0, sections 3.8 to 3.11: SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK and their options."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value
from tests.wire.peer import Peer

NO_LOCAL = 0x04
LARGEST_IDENTIFIER = 268_435_455


def publish_control(broker: Broker, name: str, topic: str) -> None:
    """A message after which nothing of the case may come."""
    broker.connect(f"{name}-control").publish(topic, b"control", qos=1)


@pytest.mark.spec("MQTT-3.8.4-1")
@pytest.mark.spec("MQTT-3.8.4-2")
@pytest.mark.spec("MQTT-2.2.1-6")
@pytest.mark.parametrize("packet_id", [1, 255, 256, 65_535])
def test_suback_has_the_packet_id(broker: Broker, name: str, packet_id: int) -> None:
    peer = broker.connect(name)
    peer.send(V5.subscribe((f"{name}/t", 1), packet_id=packet_id))
    peer.expect_packet(Kind.SUBACK, packet_id=packet_id, reasons=(1,))


@pytest.mark.spec("MQTT-3.8.4-6")
def test_a_bad_filter_does_not_spoil_the_others(broker: Broker, name: str) -> None:
    """Per filter a code of its own, unless the whole packet is refused as malformed."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((f"{name}/a", 1), (f"{name}/#/b", 1), (f"{name}/c", 1), packet_id=9))
    found = peer.receive()
    assert found is not None
    if found.kind is Kind.DISCONNECT:
        assert found.reason in (Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.FILTER_INVALID)
        return
    assert found.kind is Kind.SUBACK
    assert found.reasons == (1, Reason.FILTER_INVALID, 1)
    peer.publish(f"{name}/c", b"x", qos=1)
    peer.receive_publish(f"{name}/c", b"x", qos=1)


@pytest.mark.spec("MQTT-4.6.0-6")
def test_subscribe_and_publish_in_one_segment(broker: Broker, name: str) -> None:
    """[MQTT-4.6.0-6]: packets of one connection are processed in order."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((f"{name}/t", 1), packet_id=7), V5.publish(f"{name}/t", b"x", qos=1))
    peer.take(Kind.SUBACK, 7)
    peer.take(Kind.PUBACK, 1)
    assert peer.take_publish().payload == b"x"


@pytest.mark.spec("MQTT-3.8.4-3")
def test_replacement_replaces_the_options(broker: Broker, name: str) -> None:
    """Identifier and options are those of the last SUBSCRIBE. Mosquitto keeps the first ones."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 1 | NO_LOCAL), properties=[(Prop.SUBSCRIPTION_ID, 1)])
    peer.publish(f"{name}/t", b"hidden", qos=1)
    peer.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 2)])
    peer.publish(f"{name}/t", b"shown", qos=1)
    found = peer.receive_publish(f"{name}/t", b"shown", qos=1)
    assert found.all(Prop.SUBSCRIPTION_ID) == [2]
    peer.subscribe((f"{name}/t", 1))
    peer.publish(f"{name}/t", b"plain", qos=1)
    assert peer.receive_publish(f"{name}/t", b"plain", qos=1).all(Prop.SUBSCRIPTION_ID) == []


@pytest.mark.trap(29)
def test_replacement_while_offline_messages_wait(broker: Broker, name: str) -> None:
    """What was stored under the old options comes, and the session does not break."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 2))
    subscriber.disconnect()
    publisher = broker.connect(name)
    for index in range(5):
        publisher.publish(f"{name}/t", b"%d" % index, qos=2)
    again = broker.connect(
        f"{name}-subscriber",
        clean=False,
        expiry=60,
        properties=[(Prop.RECEIVE_MAX, 2)],
        session_present=True,
    )
    again.subscribe((f"{name}/t", 1))
    publisher.publish(f"{name}/t", b"5", qos=2)
    for index in range(6):
        assert again.take_publish().payload == b"%d" % index
    again.expect_nothing()


# --- No Local -----------------------------------------------------------------------------


@pytest.mark.spec("MQTT-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local(broker: Broker, name: str, qos: int) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 2 | NO_LOCAL))
    peer.publish(f"{name}/t", b"own", qos=qos)
    publish_control(broker, name, f"{name}/t")
    peer.receive_publish(f"{name}/t", b"control", qos=1)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.8.3-3")
def test_no_local_concerns_one_subscription(broker: Broker, name: str) -> None:
    """Another subscription of the client without No Local still receives it, once."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 2 | NO_LOCAL), properties=[(Prop.SUBSCRIPTION_ID, 1)])
    peer.subscribe((f"{name}/#", 1), properties=[(Prop.SUBSCRIPTION_ID, 2)])
    peer.publish(f"{name}/t", b"own", qos=2)
    found = peer.receive_publish(f"{name}/t", b"own", qos=1)
    assert found.all(Prop.SUBSCRIPTION_ID) == [2]
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.8.3-3")
def test_no_local_of_an_offline_session(broker: Broker, name: str) -> None:
    """Also when the own message waits in the log."""
    first = broker.connect(name, expiry=60, properties=[(Prop.RECEIVE_MAX, 1)])
    first.subscribe((f"{name}/t", 1 | NO_LOCAL))
    other = broker.connect(f"{name}-other")
    other.publish(f"{name}/t", b"1", qos=1)
    first.expect_publish(f"{name}/t", b"1")
    first.publish(f"{name}/t", b"own", qos=1)
    other.publish(f"{name}/t", b"2", qos=1)
    first.abort()
    again = broker.connect(name, clean=False, expiry=60, session_present=True)
    again.receive_publish(f"{name}/t", b"1", dup=True)
    again.receive_publish(f"{name}/t", b"2", dup=False)
    again.expect_nothing()


# --- overlapping subscriptions and identifiers --------------------------------------------


def deliveries(peer: Peer) -> list[tuple[int, list[Value]]]:
    """QoS and identifiers of the copies of one message that came, then its end marker."""
    found: list[tuple[int, list[Value]]] = []
    while True:
        message = peer.take_publish()
        if message.payload == b"end":
            return found
        found.append((message.qos, sorted(message.all(Prop.SUBSCRIPTION_ID), key=str)))


@pytest.mark.spec("MQTT-3.3.4-3")
@pytest.mark.spec("MQTT-3.3.4-4")
@pytest.mark.spec("MQTT-3.3.4-5")
def test_identifiers_of_overlapping_subscriptions(broker: Broker, name: str) -> None:
    """All of them in one copy, or each in its own."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/#", 0), properties=[(Prop.SUBSCRIPTION_ID, 1)])
    peer.subscribe((f"{name}/t", 0), properties=[(Prop.SUBSCRIPTION_ID, LARGEST_IDENTIFIER)])
    peer.subscribe((f"{name}/+", 0))
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"x")
    publisher.publish(f"{name}/t", b"end")
    found = deliveries(peer)
    identifiers = sorted((i for _, several in found for i in several), key=str)
    assert identifiers == [1, LARGEST_IDENTIFIER]
    assert len(found) in (1, 3)


@pytest.mark.spec("MQTT-3.3.4-3")
@pytest.mark.parametrize("identifier", [1, 127, 128, 16_383, 16_384, 2_097_152, 268_435_455])
def test_identifier_is_returned(broker: Broker, name: str, identifier: int) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, identifier)])
    peer.publish(f"{name}/t", b"x", qos=1)
    found = peer.receive_publish(f"{name}/t", b"x", qos=1)
    assert found.all(Prop.SUBSCRIPTION_ID) == [identifier]


def test_identifier_holds_for_all_filters_of_the_packet(broker: Broker, name: str) -> None:
    """3.8.2.1.2: one identifier per SUBSCRIBE packet."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/a", 0), (f"{name}/b", 0), properties=[(Prop.SUBSCRIPTION_ID, 5)])
    for topic in ("a", "b"):
        peer.publish(f"{name}/{topic}", b"x")
        found = peer.receive_publish(f"{name}/{topic}", b"x")
        assert found.all(Prop.SUBSCRIPTION_ID) == [5]


def test_same_identifier_for_two_subscriptions(broker: Broker, name: str) -> None:
    """3.8.4: allowed; a message that matches both may bear it once or twice, or come twice."""
    peer = broker.connect(name)
    for topic_filter in (f"{name}/t", f"{name}/+"):
        peer.subscribe((topic_filter, 0), properties=[(Prop.SUBSCRIPTION_ID, 5)])
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"x")
    publisher.publish(f"{name}/t", b"end")
    found = deliveries(peer)
    assert {i for _, several in found for i in several} == {5}
    assert len(found) in (1, 2)


def test_identifier_is_not_that_of_another_client(broker: Broker, name: str) -> None:
    """One encoded message for a fan-out must not carry one client's identifier to all."""
    peers = []
    for number in (1, 2, 0, 3):
        peer = broker.connect(f"{name}-{number}")
        properties = [(Prop.SUBSCRIPTION_ID, number)] if number else []
        peer.subscribe((f"{name}/t", 1), properties=properties)
        peers.append((number, peer))
    broker.connect(name).publish(f"{name}/t", b"x", qos=1)
    for number, peer in peers:
        found = peer.receive_publish(f"{name}/t", b"x", qos=1)
        assert found.all(Prop.SUBSCRIPTION_ID) == ([number] if number else [])


def test_identifier_is_kept_for_offline_messages(broker: Broker, name: str) -> None:
    first = broker.connect(name, expiry=60)
    first.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 300)])
    first.disconnect()
    broker.connect(f"{name}-publisher").publish(f"{name}/t", b"x", qos=1)
    again = broker.connect(name, clean=False, session_present=True)
    found = again.receive_publish(f"{name}/t", b"x", qos=1)
    assert found.all(Prop.SUBSCRIPTION_ID) == [300]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param([(Prop.USER, ("k", "v")), (Prop.USER, ("k", "v"))], id="user"),
        pytest.param([(Prop.USER, ("k", "v")), (Prop.SUBSCRIPTION_ID, 5)], id="both"),
    ],
)
def test_subscribe_properties(
    broker: Broker, name: str, properties: list[tuple[int, Value]]
) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 1), properties=properties)


# --- UNSUBSCRIBE --------------------------------------------------------------------------


@pytest.mark.spec("MQTT-3.10.4-2")
@pytest.mark.spec("MQTT-3.10.4-4")
@pytest.mark.parametrize("packet_id", [1, 256, 65_535])
def test_unsubscribe(broker: Broker, name: str, packet_id: int) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 1), (f"{name}/u", 1))
    peer.send(V5.unsubscribe(f"{name}/t", packet_id=packet_id))
    peer.expect_packet(Kind.UNSUBACK, packet_id=packet_id, reasons=(0,))
    peer.publish(f"{name}/t", b"x", qos=1)
    peer.publish(f"{name}/u", b"control", qos=1)
    peer.receive_publish(f"{name}/u", b"control", qos=1)


def test_many_filters_in_one_unsubscribe(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    filters = [f"{name}/{index}" for index in range(500)]
    peer.subscribe(*((topic_filter, 0) for topic_filter in filters))
    peer.unsubscribe(*filters)
    peer.unsubscribe(*filters, codes=(Reason.NO_SUBSCRIPTION,) * 500)
