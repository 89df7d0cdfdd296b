"""MQTT 5.0, section 4.3.3: QoS 2 in both directions, duplicates and broken exchanges."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason
from tests.wire.peer import Peer


def pair(broker: Broker, name: str) -> tuple[Peer, Peer]:
    """A subscriber at QoS 2 and a publisher, both with durable sessions."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 2))
    return subscriber, broker.connect(name, expiry=60)


def resume(broker: Broker, name: str) -> Peer:
    """The next connection of an existing session."""
    return broker.connect(name, clean=False, expiry=60, session_present=True)


# --- from the client --------------------------------------------------------------------


@pytest.mark.trap(11)
def test_duplicate_in_the_same_segment(broker: Broker, name: str) -> None:
    """The second copy arrives before the first one is committed."""
    subscriber, publisher = pair(broker, name)
    publisher.send(
        V5.publish(f"{name}/t", b"once", qos=2, packet_id=5),
        V5.publish(f"{name}/t", b"once", qos=2, packet_id=5, dup=True),
        V5.pubrel(5),
    )
    publisher.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
    publisher.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
    publisher.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    subscriber.receive_publish(f"{name}/t", b"once", qos=2)
    publisher.publish(f"{name}/t", b"control", qos=2)
    subscriber.receive_publish(f"{name}/t", b"control", qos=2)


def test_pubrel_of_nothing(broker: Broker, name: str) -> None:
    """3.7.2.1: 0x92, no error outside recovery. Mosquitto answers 0x00."""
    peer = broker.connect(name)
    peer.send(V5.pubrel(99))
    peer.expect_packet(Kind.PUBCOMP, packet_id=99, reason=Reason.PACKET_ID_NOT_FOUND)
    peer.expect_nothing()


def test_pubrel_of_nothing_with_its_reason(broker: Broker, name: str) -> None:
    """3.6.2.1: PUBREL may itself bear 0x92."""
    peer = broker.connect(name)
    peer.send(V5.pubrel(99, Reason.PACKET_ID_NOT_FOUND))
    peer.expect_packet(Kind.PUBCOMP, packet_id=99)
    peer.expect_nothing()


def test_qos1_with_the_id_of_a_qos2_exchange(broker: Broker, name: str) -> None:
    """3.4.2.1: 0x91 where the identifier is in use; delivering it is tolerated, a crash not."""
    _, publisher = pair(broker, name)
    publisher.send(V5.publish(f"{name}/t", b"two", qos=2, packet_id=5))
    publisher.expect_packet(Kind.PUBREC, packet_id=5)
    publisher.send(V5.publish(f"{name}/t", b"one", qos=1, packet_id=5))
    found = publisher.expect_packet(Kind.PUBACK, packet_id=5)
    assert found.reason in (0, 0x10, Reason.PACKET_ID_IN_USE)
    publisher.send(V5.pubrel(5))
    publisher.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)


# --- to the client ----------------------------------------------------------------------


@pytest.mark.spec("MQTT-4.3.3-1")
@pytest.mark.spec("MQTT-4.3.3-2")
@pytest.mark.spec("MQTT-4.3.3-4")
@pytest.mark.spec("MQTT-4.3.3-5")
def test_exchange_step_by_step(broker: Broker, name: str) -> None:
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2, dup=False)
    subscriber.expect_nothing()
    subscriber.send(V5.pubrec(found.packet_id))
    subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id, reason=0, properties=[])
    subscriber.expect_nothing()
    subscriber.send(V5.pubcomp(found.packet_id))
    subscriber.expect_nothing()
    subscriber.abort()
    resume(broker, f"{name}-subscriber").expect_nothing()


@pytest.mark.spec("MQTT-4.4.0-2")
@pytest.mark.spec("MQTT-4.3.3-4")
@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_negative_pubrec_ends_the_exchange(broker: Broker, name: str, reason: int) -> None:
    """4.3.3: no PUBREL then, and the message is not sent again."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.send(V5.pubrec(found.packet_id, reason))
    subscriber.expect_nothing()
    subscriber.abort()
    resume(broker, f"{name}-subscriber").expect_nothing()


@pytest.mark.parametrize("reason", [0x00, 0x10])
def test_positive_pubrec(broker: Broker, name: str, reason: int) -> None:
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.send(V5.pubrec(found.packet_id, reason))
    subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id, reason=0)
    subscriber.send(V5.pubcomp(found.packet_id, 0))
    subscriber.expect_nothing()


def test_pubrec_of_nothing(broker: Broker, name: str) -> None:
    """3.6.2.1: PUBREL 0x92. Mosquitto answers 0x00."""
    peer = broker.connect(name)
    peer.send(V5.pubrec(99))
    peer.expect_packet(Kind.PUBREL, packet_id=99, reason=Reason.PACKET_ID_NOT_FOUND)
    peer.send(V5.pubcomp(99, Reason.PACKET_ID_NOT_FOUND))
    peer.expect_nothing()


@pytest.mark.trap(8)
def test_puback_after_pubrec_does_not_end_qos2(broker: Broker, name: str) -> None:
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.send(V5.pubrec(found.packet_id))
    subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id)
    subscriber.send(V5.puback(found.packet_id), V5.disconnect())
    while subscriber.receive() is not None:
        pass
    again = resume(broker, f"{name}-subscriber")
    again.expect_packet(Kind.PUBREL, packet_id=found.packet_id)


@pytest.mark.trap(13)
@pytest.mark.trap(16)
def test_exchange_over_three_connections(broker: Broker, name: str) -> None:
    """One step for each connection, and the message is whole all the time."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(
        f"{name}/t", b"x", qos=2, properties=[(Prop.CONTENT_TYPE, "c"), (Prop.MESSAGE_EXPIRY, 99)]
    )
    packet_id = subscriber.expect_publish(f"{name}/t", b"x", qos=2).packet_id
    subscriber.abort()
    second = resume(broker, f"{name}-subscriber")
    found = second.expect_publish(f"{name}/t", b"x", qos=2, dup=True, packet_id=packet_id)
    assert found.get(Prop.CONTENT_TYPE) == "c"
    second.send(V5.pubrec(packet_id))
    second.expect_packet(Kind.PUBREL, packet_id=packet_id)
    second.abort()
    third = resume(broker, f"{name}-subscriber")
    third.expect_packet(Kind.PUBREL, packet_id=packet_id)
    third.send(V5.pubcomp(packet_id))
    third.expect_nothing()
    third.abort()
    resume(broker, f"{name}-subscriber").expect_nothing()


@pytest.mark.trap(15)
def test_release_keeps_qos_and_retain_of_its_message(broker: Broker, name: str) -> None:
    """A PUBREL after other PUBLISH packets releases what its own PUBLISH said."""
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/#", 2 | 0x08))
    publisher = broker.connect(name, expiry=60)
    publisher.send(V5.publish(f"{name}/a", b"two", qos=2, packet_id=5, retain=True))
    publisher.expect_packet(Kind.PUBREC, packet_id=5)
    publisher.publish(f"{name}/b", b"zero", qos=0)
    publisher.abort()
    again = resume(broker, name)
    again.publish(f"{name}/c", b"one", qos=1)
    again.send(V5.pubrel(5))
    again.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    found = {}
    for _ in range(3):
        message = subscriber.take_publish()
        found[message.topic] = (message.payload, message.qos, message.retain)
    assert found == {
        f"{name}/a": (b"two", 2, True),
        f"{name}/b": (b"zero", 0, False),
        f"{name}/c": (b"one", 1, False),
    }
    again.publish(f"{name}/a", b"", retain=True)


@pytest.mark.trap(17)
def test_ids_survive_a_backlog(broker: Broker, name: str) -> None:
    """What was in flight keeps its identifiers although more came in while offline."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"0", qos=2)
    publisher.publish(f"{name}/t", b"1", qos=2)
    ids = [subscriber.expect_publish(f"{name}/t", b"%d" % i).packet_id for i in range(2)]
    subscriber.abort()
    for index in range(2, 6):
        publisher.publish(f"{name}/t", b"%d" % index, qos=2)
    again = resume(broker, f"{name}-subscriber")
    for index in range(2):
        again.expect_publish(f"{name}/t", b"%d" % index, dup=True, packet_id=ids[index])
    fresh = [again.expect_publish(f"{name}/t", b"%d" % i, dup=False).packet_id for i in range(2, 6)]
    assert not set(fresh) & set(ids)
