"""MQTT 3.1.1, section 4.6: ordering, seen from the subscriber."""

from __future__ import annotations

import pytest

from tests.wire.clients import (
    UNLIMITED,
    Clients,
    numbered,
    payloads_of,
    send_publishes,
    take_publishes,
)
from tests.wire.packets import Kind

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-4.6.0-5")
@pytest.mark.spec("MQTT-4.6.0-6")
@pytest.mark.spec("MQTT-3.3.2-3")
@pytest.mark.spec("MQTT-4.2.0-1@3.1.1")
@pytest.mark.spec("MQTT-4.6.0-5@3.1.1")
@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("topic_filter", ["{}/t", "{}/+", "{}/#"])
def test_one_topic(
    clients: Clients, name: str, published: int, granted: int, topic_filter: str
) -> None:
    """Same topic, same QoS: as published, whatever filter it is."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((topic_filter.format(name), granted))
    send_publishes(publisher, f"{name}/t", numbered(200), qos=published)
    if published == 2:
        publisher.take(Kind.PUBREC, 200)
        publisher.send(*(clients.build.pubrel(packet_id) for packet_id in range(1, 201)))
    assert payloads_of(take_publishes(peer, 200)) == numbered(200)


@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_several_publishers_and_topics(clients: Clients, name: str, qos: int) -> None:
    """Each publisher's messages on each topic keep their order among all the others."""
    publishers = [clients.join(f"{name}-{number}") for number in range(4)]
    peer = clients.join(name)
    peer.subscribe((f"{name}/#", qos))
    for step in range(50):
        for number, publisher in enumerate(publishers):
            for topic in ("a", "b"):
                packet_id = step * 2 + (topic == "b") + 1
                publisher.send(
                    clients.build.publish(
                        f"{name}/{topic}",
                        b"%d %d" % (number, step),
                        qos=qos,
                        packet_id=packet_id if qos else None,
                    )
                )
    if qos == 2:
        for publisher in publishers:
            publisher.take(Kind.PUBREC, 100)
            publisher.send(*(clients.build.pubrel(packet_id) for packet_id in range(1, 101)))
    seen: dict[tuple[str, int], list[int]] = {}
    for found in take_publishes(peer, 400):
        number, step = map(int, found.payload.split())
        seen.setdefault((found.topic, number), []).append(step)
    assert len(seen) == 8
    assert all(steps == list(range(50)) for steps in seen.values())


@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
def test_mixed_qos_of_one_publisher(clients: Clients, name: str) -> None:
    """Within each QoS the order holds; between them it may not."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 2))
    for index in range(60):
        qos = index % 3
        publisher.send(
            clients.build.publish(
                name, b"%d" % index, qos=qos, packet_id=index + 1 if qos else None
            )
        )
    publisher.take(Kind.PUBREC, 60)
    publisher.send(*(clients.build.pubrel(packet_id) for packet_id in range(3, 61, 3)))
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for found in take_publishes(peer, 60):
        seen[found.qos].append(int(found.payload))
    assert seen == {qos: list(range(qos, 60, 3)) for qos in range(3)}


@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
def test_every_subscriber_sees_the_same_order(clients: Clients, name: str) -> None:
    """Two publishers race; all subscribers of a topic agree on who was first."""
    one, two = clients.join(f"{name}-1"), clients.join(f"{name}-2")
    peers = [clients.join(f"{name}-s{index}") for index in range(4)]
    for index, peer in enumerate(peers):
        peer.subscribe((f"{name}/t" if index % 2 else f"{name}/+", 1))
    for index in range(100):
        one.send(clients.build.publish(f"{name}/t", b"a%d" % index, qos=1, packet_id=index + 1))
        two.send(clients.build.publish(f"{name}/t", b"b%d" % index, qos=1, packet_id=index + 1))
    orders = [payloads_of(take_publishes(peer, 200)) for peer in peers]
    assert all(order == orders[0] for order in orders)


def test_slow_subscriber_does_not_hold_up_others(clients: Clients, name: str) -> None:
    """One that reads nothing and acknowledges nothing; the fast one gets all of it."""
    publisher = clients.join(f"{name}-publisher")
    slow, fast = clients.join(f"{name}-slow"), clients.join(f"{name}-fast")
    slow.subscribe((name, 1))
    fast.subscribe((name, 1))
    for start in range(0, 3000, 500):
        send_publishes(publisher, name, numbered(500, start), qos=1)
        found = take_publishes(fast, 500)
        assert payloads_of(found) == numbered(500, start)
        fast.send(*(clients.build.puback(packet.packet_id) for packet in found))
    got = []
    while len(got) < 3000:
        packet = slow.expect_packet(Kind.PUBLISH)
        got.append(packet.payload)
        slow.send(clients.build.puback(packet.packet_id))
    assert got == numbered(3000)


@pytest.mark.trap(34)
def test_flood_of_qos_0_beside_qos_1(clients: Clients, name: str) -> None:
    """To a subscriber that does not read: QoS 0 may be dropped, QoS 1 not; both keep their order.

    4.3.1 lets a server lose QoS 0 messages, but not the connection's way back to normal.
    """
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1))
    filler = b" " + b"f" * 20_000
    for index in range(1000):
        publisher.send(clients.build.publish(name, b"%d" % index + filler, qos=0))
        if index % 100 == 0:
            publisher.publish(name, b"%d" % index, qos=1)
    publisher.publish(name, b"last", qos=1)
    seen: dict[int, list[int]] = {0: [], 1: []}
    while (found := peer.expect_packet(Kind.PUBLISH)).payload != b"last":
        seen[found.qos].append(int(found.payload.split()[0]))
        peer.acknowledge(found)
    assert seen[1] == list(range(0, 1000, 100))
    assert seen[0] == sorted(set(seen[0]))
    peer.fence()
    publisher.publish(name, b"small", qos=0)
    assert peer.take(Kind.PUBLISH).payload == b"small"


@pytest.mark.trap(30)
@pytest.mark.trap(34)
def test_large_messages_to_a_subscriber_that_does_not_read(clients: Clients, name: str) -> None:
    """More bytes than any socket buffer holds wait for the subscriber; none is lost."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1))
    payload = b"L" * 250_000
    for index in range(40):
        publisher.publish(name, b"%02d" % index + payload, qos=1)
    for index in range(40):
        found = peer.receive_publish(name, b"%02d" % index + payload, qos=1)
        assert not found.dup
    peer.expect_nothing()
