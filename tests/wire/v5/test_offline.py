"""MQTT 5.0, sections 4.1, 4.4, 4.6: what waits for a session that is not connected.

Mosquitto cuts a backlog off at 1,000 messages, sends one copy for each overlapping subscription
(3.3.4 leaves that open; ours sends one), and does not repeat some messages of a window with gaps.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop
from tests.wire.peer import Peer


def leave(broker: Broker, name: str, *filters: tuple[str, int]) -> None:
    """A durable session with these subscriptions and no connection."""
    subscriber = broker.connect(f"{name}-subscriber", expiry=600)
    subscriber.subscribe(*filters)
    subscriber.disconnect()


def resume(broker: Broker, name: str, *properties: tuple[int, int]) -> Peer:
    """The subscriber's next connection."""
    return broker.connect(
        f"{name}-subscriber", clean=False, expiry=600, properties=properties, session_present=True
    )


@pytest.mark.spec("MQTT-4.6.0-6")
@pytest.mark.spec("MQTT-4.5.0-1")
@pytest.mark.parametrize("count", [1, 10, 1000])
@pytest.mark.parametrize("qos", [1, 2])
def test_backlog_comes_in_order(broker: Broker, name: str, qos: int, count: int) -> None:
    leave(broker, name, (f"{name}/t", qos))
    publisher = broker.connect(name)
    publish_many(publisher, f"{name}/t", [b"%d" % index for index in range(count)], qos)
    again = resume(broker, name)
    ids = set()
    for index in range(count):
        found = again.receive_publish(f"{name}/t", b"%d" % index, qos=qos, dup=False)
        ids.add(found.packet_id)
    assert len(ids) == count
    again.expect_nothing()
    again.disconnect()
    resume(broker, name).expect_nothing()


def publish_many(publisher: Peer, topic: str, payloads: list[bytes], qos: int) -> None:
    """Publishes with up to twenty exchanges under way."""
    for start in range(0, len(payloads), 20):
        part = payloads[start : start + 20]
        ids = [publisher.next_packet_id() for _ in part]
        publisher.send(
            *(
                V5.publish(topic, payload, qos=qos, packet_id=packet_id)
                for payload, packet_id in zip(part, ids, strict=True)
            )
        )
        for packet_id in ids:
            publisher.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id)
            if qos == 2:
                publisher.send(V5.pubrel(packet_id))
                publisher.take(Kind.PUBCOMP, packet_id)


def test_qos0_is_not_kept(broker: Broker, name: str) -> None:
    """4.1: QoS 0 messages pending are optional; by default ours keeps none."""
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"zero", qos=0)
    publisher.publish(f"{name}/t", b"one", qos=1)
    again = resume(broker, name)
    again.receive_publish(f"{name}/t", b"one", qos=1)
    again.expect_nothing()


def test_subscription_at_qos0_keeps_nothing(broker: Broker, name: str) -> None:
    """The delivery would be QoS 0 whatever was published."""
    leave(broker, name, (f"{name}/t", 0))
    broker.connect(name).publish(f"{name}/t", b"x", qos=2)
    again = resume(broker, name)
    broker.connect(f"{name}-2").publish(f"{name}/t", b"live", qos=2)
    again.receive_publish(f"{name}/t", b"live", qos=0)


@pytest.mark.trap(33)
def test_live_messages_do_not_overtake_the_backlog(broker: Broker, name: str) -> None:
    """Publishing goes on while the session catches up: one order, no gap, no repeat."""
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(100):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    again = resume(broker, name, (Prop.RECEIVE_MAX, 5))
    for index in range(200):
        if index < 100:
            publisher.publish(f"{name}/t", b"%d" % (100 + index), qos=1)
        again.receive_publish(f"{name}/t", b"%d" % index, qos=1, dup=False)
    again.expect_nothing()


@pytest.mark.trap(33)
def test_resume_in_the_middle_of_a_flow(broker: Broker, name: str) -> None:
    """Ten short connections in a flow of messages: each comes once, in order."""
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    published = received = 0
    for _ in range(10):
        for _ in range(5):
            publisher.publish(f"{name}/t", b"%d" % published, qos=1)
            published += 1
        again = resume(broker, name)
        for _ in range(3):
            again.receive_publish(f"{name}/t", b"%d" % received, qos=1)
            received += 1
        again.fence()
        for message in again.drain():
            if message.kind is Kind.PUBLISH:
                assert int(message.payload) >= received
        again.disconnect()
    again = resume(broker, name)
    while received < published:
        again.receive_publish(f"{name}/t", b"%d" % received, qos=1)
        received += 1
    again.expect_nothing()


@pytest.mark.trap(20)
def test_acknowledged_position_is_that_of_this_connection(broker: Broker, name: str) -> None:
    """Read but not acknowledged on the first connection, so all of it comes again."""
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(20):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    first = resume(broker, name)
    ids = [first.expect_publish(f"{name}/t", b"%d" % index).packet_id for index in range(20)]
    first.abort()
    second = resume(broker, name)
    for index in range(20):
        second.expect_publish(f"{name}/t", b"%d" % index, dup=True, packet_id=ids[index])
    second.expect_nothing()


@pytest.mark.trap(19)
@pytest.mark.trap(20)
def test_gaps_of_acknowledgements_survive(broker: Broker, name: str) -> None:
    """Every third one is acknowledged: the others come again, with their identifiers."""
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(30):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    first = resume(broker, name)
    ids = [first.expect_publish(f"{name}/t", b"%d" % index).packet_id for index in range(30)]
    first.send(*(V5.puback(ids[index]) for index in range(29, -1, -3)))
    first.fence()
    first.abort()
    second = resume(broker, name)
    for index in range(30):
        if index % 3 != 2:
            second.expect_publish(f"{name}/t", b"%d" % index, dup=True, packet_id=ids[index])
    second.expect_nothing()


def test_wildcards_and_several_subscriptions(broker: Broker, name: str) -> None:
    """Each message once for overlapping filters, at the highest QoS, in the log's order."""
    leave(broker, name, (f"{name}/+/a", 1), (f"{name}/b/#", 2), (f"{name}/c", 1))
    publisher = broker.connect(name)
    topics = ["b/a", "c", "x/a", "b", "b/c/d", "d", "x/b"]
    for index, topic in enumerate(topics):
        publisher.publish(f"{name}/{topic}", b"%d" % index, qos=2)
    again = resume(broker, name)
    found: list[tuple[str, int]] = []
    for _ in range(5):
        message = again.take_publish()
        found.append((message.topic.removeprefix(f"{name}/"), message.qos))
    assert found == [("b/a", 2), ("c", 1), ("x/a", 1), ("b", 2), ("b/c/d", 2)]
    again.expect_nothing()


def test_messages_of_several_publishers_keep_their_order(broker: Broker, name: str) -> None:
    leave(broker, name, (f"{name}/#", 1))
    publishers = [broker.connect(f"{name}-{number}") for number in range(3)]
    for index in range(20):
        for number, publisher in enumerate(publishers):
            publisher.publish(f"{name}/{number}", b"%d" % index, qos=1)
    again = resume(broker, name)
    seen: dict[str, list[int]] = {}
    for _ in range(60):
        message = again.take_publish()
        seen.setdefault(message.topic, []).append(int(message.payload))
    assert all(numbers == list(range(20)) for numbers in seen.values())


def test_two_offline_sessions_are_independent(broker: Broker, name: str) -> None:
    """What one acknowledges stays for the other."""
    for suffix in ("1", "2"):
        leave(broker, f"{name}{suffix}", (f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(5):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    for suffix in ("1", "2"):
        again = resume(broker, f"{name}{suffix}")
        for index in range(5):
            again.receive_publish(f"{name}/t", b"%d" % index, qos=1)
        again.expect_nothing()


def test_session_that_subscribed_later_gets_nothing_older(broker: Broker, name: str) -> None:
    """The log holds older messages; a subscription begins where it was made."""
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"before", qos=1)
    leave(broker, name, (f"{name}/t", 1))
    publisher.publish(f"{name}/t", b"after", qos=1)
    again = resume(broker, name)
    again.receive_publish(f"{name}/t", b"after", qos=1)
    again.expect_nothing()


def test_window_of_the_resumed_connection(broker: Broker, name: str) -> None:
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(20):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
    again = resume(broker, name, (Prop.RECEIVE_MAX, 4))
    found = [again.expect_publish(f"{name}/t", b"%d" % index) for index in range(4)]
    again.expect_nothing()
    again.send(V5.puback(found[3].packet_id))
    again.expect_publish(f"{name}/t", b"4")
    again.expect_nothing()


def test_large_messages_of_a_backlog(broker: Broker, name: str) -> None:
    """More bytes than any socket buffer, with a reader that takes its time."""
    leave(broker, name, (f"{name}/t", 1))
    publisher = broker.connect(name)
    body = bytes(range(256)) * 400
    for index in range(40):
        publisher.publish(f"{name}/t", b"%d:" % index + body, qos=1)
    again = resume(broker, name)
    for index in range(40):
        again.receive_publish(f"{name}/t", b"%d:" % index + body, qos=1)
    again.expect_nothing()


@pytest.mark.trap(34)
def test_backlog_with_qos0_traffic_beside(broker: Broker, name: str) -> None:
    leave(broker, name, (f"{name}/#", 1))
    publisher = broker.connect(name)
    for index in range(50):
        publisher.publish(f"{name}/one", b"%d" % index, qos=1)
    again = resume(broker, name, (Prop.RECEIVE_MAX, 2))
    for _ in range(50):
        publisher.publish(f"{name}/zero", b"x", qos=0)
    ones: list[int] = []
    while len(ones) < 50:
        message = again.take_publish()
        if message.topic.endswith("one"):
            ones.append(int(message.payload))
    assert ones == list(range(50))


@pytest.mark.trap(1)
def test_packet_ids_wrap(broker: Broker, name: str) -> None:
    """More than 65,535 messages for one session, one of them unacknowledged all the time.

    The kept one holds its identifier, no other message gets it while the numbers wrap, and
    none is skipped after the wrap.
    """
    total = 66_000
    subscriber = broker.connect(f"{name}-subscriber", expiry=600)
    subscriber.subscribe((f"{name}/t", 1))
    publisher = broker.connect(name)
    chunk = 500
    received = 0
    for start in range(0, total, chunk):
        raw = []
        for index in range(start, start + chunk):
            packet_id = index % 65_535 + 1
            raw.append(V5.publish(f"{name}/t", b"%d" % index, qos=1, packet_id=packet_id))
        publisher.send(*raw)
        acknowledgements = []
        for index in range(start, start + chunk):
            publisher.expect_packet(Kind.PUBACK, packet_id=index % 65_535 + 1)
        for index in range(start, start + chunk):
            found = subscriber.expect_publish(f"{name}/t", b"%d" % index, qos=1)
            assert 1 <= found.packet_id <= 65_535
            acknowledgements.append(V5.puback(found.packet_id))
            received += 1
        subscriber.send(*acknowledgements)
    assert received == total
    subscriber.expect_nothing()
    subscriber.disconnect()
    publisher.publish(f"{name}/t", b"after the wrap", qos=1)
    again = resume(broker, name)
    again.receive_publish(f"{name}/t", b"after the wrap", qos=1)
    again.expect_nothing()
