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


@pytest.mark.spec("MQTT-4.3.3-8")
@pytest.mark.spec("MQTT-4.3.3-10")
@pytest.mark.spec("MQTT-4.3.3-12")
@pytest.mark.trap(11)
@pytest.mark.parametrize("repeats", [1, 2, 3, 10])
def test_duplicates_before_pubrel(broker: Broker, name: str, repeats: int) -> None:
    """Each is answered with PUBREC, and the message is delivered once.

    Mosquitto 2.0 takes the second duplicate for a protocol error.
    """
    subscriber, publisher = pair(broker, name)
    publisher.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=5))
    publisher.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
    for _ in range(repeats):
        publisher.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=5, dup=True))
        publisher.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
    publisher.send(V5.pubrel(5))
    publisher.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    subscriber.receive_publish(f"{name}/t", b"once", qos=2)
    publisher.publish(f"{name}/t", b"control", qos=2)
    subscriber.receive_publish(f"{name}/t", b"control", qos=2)


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


@pytest.mark.spec("MQTT-4.3.3-9")
@pytest.mark.trap(10)
def test_dup_flag_alone_makes_no_duplicate(broker: Broker, name: str) -> None:
    """A first delivery may bear DUP 1: its predecessor may have been torn."""
    subscriber, publisher = pair(broker, name)
    publisher.send(V5.publish(f"{name}/t", b"first seen", qos=2, packet_id=5, dup=True))
    publisher.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
    publisher.send(V5.pubrel(5))
    publisher.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    subscriber.receive_publish(f"{name}/t", b"first seen", qos=2, dup=False)


def test_same_id_after_pubcomp_is_a_new_message(broker: Broker, name: str) -> None:
    subscriber, publisher = pair(broker, name)
    for index in range(5):
        publisher.send(V5.publish(f"{name}/t", b"%d" % index, qos=2, packet_id=5))
        publisher.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
        publisher.send(V5.pubrel(5))
        publisher.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
        subscriber.receive_publish(f"{name}/t", b"%d" % index, qos=2)


@pytest.mark.spec("MQTT-4.3.3-11")
@pytest.mark.trap(12)
def test_pubrel_twice(broker: Broker, name: str) -> None:
    """The second one finds nothing: PUBCOMP 0x92, and the connection lives."""
    _, publisher = pair(broker, name)
    publisher.send(V5.publish(f"{name}/t", b"x", qos=2, packet_id=5))
    publisher.expect_packet(Kind.PUBREC, packet_id=5)
    publisher.send(V5.pubrel(5), V5.pubrel(5))
    publisher.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    publisher.expect_packet(Kind.PUBCOMP, packet_id=5)
    publisher.expect_nothing()


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


@pytest.mark.spec("MQTT-4.3.3-12")
@pytest.mark.trap(16)
@pytest.mark.parametrize("ending", ["abort", "disconnect", "takeover"])
def test_duplicate_on_the_next_connection(broker: Broker, name: str, ending: str) -> None:
    """PUBREC was lost, the client sends the PUBLISH again: still one message."""
    subscriber, publisher = pair(broker, name)
    publisher.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=5))
    publisher.expect_packet(Kind.PUBREC, packet_id=5)
    if ending != "takeover":
        getattr(publisher, ending)()
    again = resume(broker, name)
    again.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=5, dup=True))
    again.expect_packet(Kind.PUBREC, packet_id=5, reason=0)
    again.send(V5.pubrel(5))
    again.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    subscriber.receive_publish(f"{name}/t", b"once", qos=2)
    again.publish(f"{name}/t", b"control", qos=2)
    subscriber.receive_publish(f"{name}/t", b"control", qos=2)


def test_pubrel_on_the_next_connection(broker: Broker, name: str) -> None:
    """PUBCOMP was lost: the PUBREL alone completes the exchange."""
    subscriber, publisher = pair(broker, name)
    publisher.send(V5.publish(f"{name}/t", b"once", qos=2, packet_id=5))
    publisher.expect_packet(Kind.PUBREC, packet_id=5)
    publisher.abort()
    again = resume(broker, name)
    again.send(V5.pubrel(5))
    again.expect_packet(Kind.PUBCOMP, packet_id=5, reason=0)
    subscriber.receive_publish(f"{name}/t", b"once", qos=2)
    again.expect_nothing()


def test_interleaved_exchanges(broker: Broker, name: str) -> None:
    """Twenty exchanges at once, released in another order, and none is lost or doubled."""
    subscriber, publisher = pair(broker, name)
    ids = list(range(1, 16))
    publisher.send(*(V5.publish(f"{name}/t", b"%d" % i, qos=2, packet_id=i) for i in ids))
    for packet_id in ids:
        publisher.expect_packet(Kind.PUBREC, packet_id=packet_id)
    publisher.send(*(V5.pubrel(i) for i in reversed(ids)))
    for packet_id in reversed(ids):
        publisher.expect_packet(Kind.PUBCOMP, packet_id=packet_id, reason=0)
    assert sorted(int(subscriber.take_publish().payload) for _ in ids) == ids
    subscriber.expect_nothing()


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


@pytest.mark.trap(9)
def test_exchanges_without_pubrel_end_with_the_session(broker: Broker, name: str) -> None:
    """Their quota comes back: the next session can send as many again."""
    for _ in range(3):
        publisher = broker.connect(name)
        limit = publisher.connack.get(Prop.RECEIVE_MAX) or 65_535
        assert isinstance(limit, int)
        count = min(limit, 50)
        ids = range(1, count + 1)
        publisher.send(*(V5.publish(f"{name}/t", b"", qos=2, packet_id=i) for i in ids))
        for packet_id in ids:
            publisher.expect_packet(Kind.PUBREC, packet_id=packet_id)
        publisher.abort()


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


@pytest.mark.spec("MQTT-4.3.3-3")
@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.trap(3)
def test_publish_is_sent_again_without_pubrec(broker: Broker, name: str) -> None:
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.abort()
    again = resume(broker, f"{name}-subscriber")
    again.receive_publish(f"{name}/t", b"x", qos=2, dup=True, packet_id=found.packet_id)
    again.expect_nothing()


@pytest.mark.spec("MQTT-4.4.0-1")
@pytest.mark.spec("MQTT-4.3.3-6")
@pytest.mark.trap(12)
@pytest.mark.parametrize("seen", [False, True])
def test_pubrel_is_sent_again_after_pubrec(broker: Broker, name: str, seen: bool) -> None:
    """Never the PUBLISH: the exchange goes on where it stood."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.send(V5.pubrec(found.packet_id))
    if seen:
        subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id)
        subscriber.abort()
    else:
        subscriber.send(V5.disconnect())
        while subscriber.receive() is not None:
            pass
    again = resume(broker, f"{name}-subscriber")
    again.expect_packet(Kind.PUBREL, packet_id=found.packet_id, reason=0)
    again.send(V5.pubcomp(found.packet_id))
    again.expect_nothing()
    again.disconnect()
    resume(broker, f"{name}-subscriber").expect_nothing()


@pytest.mark.spec("MQTT-4.6.0-1")
def test_mixed_states_are_resumed_in_order(broker: Broker, name: str) -> None:
    """QoS 1 unacknowledged, QoS 2 at PUBREL, QoS 2 at PUBLISH: each in its own step."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"1", qos=1)
    publisher.publish(f"{name}/t", b"2", qos=2)
    publisher.publish(f"{name}/t", b"3", qos=2)
    publisher.publish(f"{name}/t", b"4", qos=1)
    ids = [subscriber.expect_publish(f"{name}/t", b"%d" % i).packet_id for i in range(1, 5)]
    subscriber.send(V5.pubrec(ids[1]))
    subscriber.expect_packet(Kind.PUBREL, packet_id=ids[1])
    subscriber.abort()
    again = resume(broker, f"{name}-subscriber")
    again.take(Kind.PUBREL, ids[1])
    again.expect_publish(f"{name}/t", b"1", qos=1, dup=True, packet_id=ids[0])
    again.expect_publish(f"{name}/t", b"3", qos=2, dup=True, packet_id=ids[2])
    again.expect_publish(f"{name}/t", b"4", qos=1, dup=True, packet_id=ids[3])
    again.expect_nothing()


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


@pytest.mark.spec("MQTT-4.6.0-4")
def test_pubrels_follow_their_pubrecs(broker: Broker, name: str) -> None:
    """PUBREL packets go out in the order in which the PUBREC packets came."""
    subscriber, publisher = pair(broker, name)
    for index in range(5):
        publisher.publish(f"{name}/t", b"%d" % index, qos=2)
    ids = [subscriber.expect_publish(f"{name}/t", b"%d" % i).packet_id for i in range(5)]
    order = [ids[i] for i in (3, 0, 4, 1, 2)]
    subscriber.send(*(V5.pubrec(packet_id) for packet_id in order))
    for packet_id in order:
        subscriber.expect_packet(Kind.PUBREL, packet_id=packet_id, reason=0)


@pytest.mark.trap(12)
def test_pubrec_twice(broker: Broker, name: str) -> None:
    """The PUBREL is owed again, as the first may have been lost."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.send(V5.pubrec(found.packet_id), V5.pubrec(found.packet_id))
    subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id, reason=0)
    subscriber.expect_packet(Kind.PUBREL, packet_id=found.packet_id)
    subscriber.send(V5.pubcomp(found.packet_id))
    subscriber.expect_nothing()


def test_pubrec_of_nothing(broker: Broker, name: str) -> None:
    """3.6.2.1: PUBREL 0x92. Mosquitto answers 0x00."""
    peer = broker.connect(name)
    peer.send(V5.pubrec(99))
    peer.expect_packet(Kind.PUBREL, packet_id=99, reason=Reason.PACKET_ID_NOT_FOUND)
    peer.send(V5.pubcomp(99, Reason.PACKET_ID_NOT_FOUND))
    peer.expect_nothing()


@pytest.mark.trap(8)
@pytest.mark.parametrize("wrong", [Kind.PUBACK, Kind.PUBCOMP])
def test_wrong_acknowledgement_does_not_end_qos2(broker: Broker, name: str, wrong: Kind) -> None:
    """A PUBACK, or a PUBCOMP before PUBREC: ignored or refused, never taken for the end."""
    subscriber, publisher = pair(broker, name)
    publisher.publish(f"{name}/t", b"x", qos=2)
    found = subscriber.expect_publish(f"{name}/t", b"x", qos=2)
    subscriber.send(V5.ack(wrong, found.packet_id), V5.disconnect())
    while subscriber.receive() is not None:
        pass
    again = resume(broker, f"{name}-subscriber")
    again.expect_publish(f"{name}/t", b"x", qos=2, dup=True, packet_id=found.packet_id)


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
