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


@pytest.mark.spec("MQTT-3.8.4-5")
@pytest.mark.spec("MQTT-3.8.4-6")
@pytest.mark.spec("MQTT-3.8.4-7")
@pytest.mark.spec("MQTT-3.9.3-1")
@pytest.mark.spec("MQTT-3.9.3-2")
def test_one_code_for_each_filter_in_order(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.subscribe(
        (f"{name}/2", 2), (f"{name}/0", 0), (f"{name}/1", 1), (f"{name}/2", 2), codes=(2, 0, 1, 2)
    )


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


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_many_filters_in_one_packet(broker: Broker, name: str, count: int) -> None:
    peer = broker.connect(name)
    peer.subscribe(*((f"{name}/{index}", index % 3) for index in range(count)))
    peer.publish(f"{name}/{count - 1}", b"last")
    peer.receive_publish(f"{name}/{count - 1}", b"last", qos=0)


@pytest.mark.trap(51)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscription_holds_from_its_suback(broker: Broker, name: str, qos: int) -> None:
    """A message published after the SUBACK is never missed, fifty times over."""
    publisher = broker.connect(f"{name}-publisher")
    for index in range(50):
        subscriber = broker.connect(f"{name}-{index}")
        subscriber.subscribe((f"{name}/{index}", qos))
        publisher.publish(f"{name}/{index}", b"x", qos=qos)
        subscriber.receive_publish(f"{name}/{index}", b"x", qos=qos)
        subscriber.close()


@pytest.mark.spec("MQTT-4.6.0-6")
def test_subscribe_and_publish_in_one_segment(broker: Broker, name: str) -> None:
    """[MQTT-4.6.0-6]: packets of one connection are processed in order."""
    peer = broker.connect(name)
    peer.send(V5.subscribe((f"{name}/t", 1), packet_id=7), V5.publish(f"{name}/t", b"x", qos=1))
    peer.take(Kind.SUBACK, 7)
    peer.take(Kind.PUBACK, 1)
    assert peer.take_publish().payload == b"x"


@pytest.mark.spec("MQTT-3.8.4-3")
@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 0), (1, 2), (2, 1)])
def test_same_filter_replaces(broker: Broker, name: str, first: int, second: int) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", first))
    peer.subscribe((f"{name}/t", second))
    peer.publish(f"{name}/t", b"x", qos=2)
    peer.receive_publish(f"{name}/t", b"x", qos=second)
    peer.expect_nothing()


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


@pytest.mark.spec("MQTT-3.8.4-4")
@pytest.mark.trap(29)
def test_no_message_is_lost_by_a_replacement(broker: Broker, name: str) -> None:
    """Resubscriptions in the middle of a flow: each message comes once, in order."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(40):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
        if index % 10 == 5:
            subscriber.subscribe((f"{name}/t", 1 + index % 20 // 10))
    for index in range(40):
        assert subscriber.take_publish().payload == b"%d" % index
    subscriber.expect_nothing()


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


@pytest.mark.spec("MQTT-3.3.4-2")
@pytest.mark.parametrize("published", [0, 1, 2])
def test_overlapping_subscriptions_give_the_highest_qos(
    broker: Broker, name: str, published: int
) -> None:
    """One copy at the highest granted QoS; or one for each, of which one has the highest."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/#", 0), (f"{name}/t", 2), (f"{name}/+", 1), (f"{name}/end", 0))
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"x", qos=published)
    peer.unsubscribe(f"{name}/#", f"{name}/+")
    publisher.publish(f"{name}/end", b"end")
    found = deliveries(peer)
    assert max(qos for qos, _ in found) == published
    assert len(found) in (1, 3)


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


@pytest.mark.spec("MQTT-3.10.4-5")
@pytest.mark.spec("MQTT-3.10.4-6")
@pytest.mark.spec("MQTT-3.11.3-1")
@pytest.mark.spec("MQTT-3.11.3-2")
def test_one_unsubscribe_code_for_each_filter(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/a", 0), (f"{name}/b", 0))
    filters = (f"{name}/x", f"{name}/a", f"{name}/y", f"{name}/b", f"{name}/a")
    peer.unsubscribe(*filters, codes=(0x11, 0, 0x11, 0, 0x11))


@pytest.mark.spec("MQTT-3.10.4-1")
@pytest.mark.parametrize("other", ["{}/T", "{}/+", "{}/#", "{}", "{}/t/", "$share/g/{}/t"])
def test_unsubscribe_compares_characters(broker: Broker, name: str, other: str) -> None:
    """A filter that matches the same topics, or almost the same text, is another one."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 0))
    peer.unsubscribe(other.format(name), codes=(Reason.NO_SUBSCRIPTION,))
    peer.publish(f"{name}/t", b"x")
    peer.receive_publish(f"{name}/t", b"x")


@pytest.mark.spec("MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_unsubscribe_completes_what_was_begun(broker: Broker, name: str, qos: int) -> None:
    """Messages sent at QoS 1 and 2 are completed, and sent again on resume if need be."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", qos))
    broker.connect(name).publish(f"{name}/t", b"x", qos=qos)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=qos)
    subscriber.unsubscribe(f"{name}/t")
    subscriber.abort()
    again = broker.connect(f"{name}-subscriber", clean=False, expiry=60, session_present=True)
    again.receive_publish(f"{name}/t", b"x", qos=qos, dup=True, packet_id=found.packet_id)
    again.expect_nothing()


def test_unsubscribe_holds_across_connections(broker: Broker, name: str) -> None:
    first = broker.connect(name, expiry=60)
    first.subscribe((f"{name}/t", 1), (f"{name}/u", 1))
    first.unsubscribe(f"{name}/t")
    first.disconnect()
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(f"{name}/t", b"x", qos=1)
    publisher.publish(f"{name}/u", b"control", qos=1)
    again = broker.connect(name, clean=False, session_present=True)
    again.receive_publish(f"{name}/u", b"control", qos=1)
    again.expect_nothing()


def test_subscribe_again_after_unsubscribe_starts_anew(broker: Broker, name: str) -> None:
    """What was published between the two belongs to neither subscription."""
    peer = broker.connect(name, expiry=60)
    publisher = broker.connect(f"{name}-publisher")
    peer.subscribe((f"{name}/t", 1))
    peer.unsubscribe(f"{name}/t")
    publisher.publish(f"{name}/t", b"between", qos=1)
    peer.subscribe((f"{name}/t", 1))
    publisher.publish(f"{name}/t", b"after", qos=1)
    peer.receive_publish(f"{name}/t", b"after", qos=1)
    peer.disconnect()
    broker.connect(name, clean=False, session_present=True).expect_nothing()


def test_many_filters_in_one_unsubscribe(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    filters = [f"{name}/{index}" for index in range(500)]
    peer.subscribe(*((topic_filter, 0) for topic_filter in filters))
    peer.unsubscribe(*filters)
    peer.unsubscribe(*filters, codes=(Reason.NO_SUBSCRIPTION,) * 500)
