"""Sections 4.1 and 4.4: the broker is killed amid a burst, after every step, and ever again."""

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
from tests.wire.harness import Broker
from tests.wire.packets import Kind

BROKER_OPTIONS = UNLIMITED


@pytest.mark.spec("MQTT-4.5.0-1@3.1.1")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("read", [1, 400])
def test_kill_amid_a_burst(
    broker: Broker, clients: Clients, name: str, qos: int, read: int
) -> None:
    """Whatever was acknowledged before the kill is delivered, in order and without a gap."""
    clients.durable(name, (name, qos)).disconnect()
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, name, numbered(2000), qos=qos)
    answer = Kind.PUBACK if qos == 1 else Kind.PUBREC
    for packet_id in range(1, read + 1):
        publisher.expect_packet(answer, packet_id=packet_id)
    broker.kill9(start=False)
    acknowledged = read
    while (found := publisher.receive()) is not None:
        acknowledged = found.packet_id
    broker.start()
    again = clients.resume(name)
    marker = clients.join(f"{name}-publisher")
    marker.publish(name, b"end", qos=qos)
    got = []
    while (found := again.take(Kind.PUBLISH)).payload != b"end":
        got.append(found.payload)
        again.acknowledge(found)
    assert got == numbered(len(got))
    assert len(got) >= acknowledged


@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.spec("MQTT-4.6.0-6@3.1.1")
def test_exactly_once_through_many_kills(broker: Broker, clients: Clients, name: str) -> None:
    """Publisher and subscriber behave as 4.4 tells them; the broker dies after every step."""
    publisher = clients.durable(f"{name}-publisher")
    subscriber = clients.durable(name, (name, 2))
    got: list[bytes] = []
    for number in range(4):
        packet_id = number + 1
        publisher.send(clients.build.publish(name, b"%d" % number, qos=2, packet_id=packet_id))
        publisher.expect_ack(Kind.PUBREC, packet_id)
        broker.kill9()
        publisher = clients.resume(f"{name}-publisher")
        publisher.send(
            clients.build.publish(name, b"%d" % number, qos=2, packet_id=packet_id, dup=True)
        )
        publisher.expect_ack(Kind.PUBREC, packet_id)
        publisher.send(clients.build.pubrel(packet_id))
        publisher.expect_ack(Kind.PUBCOMP, packet_id)
        subscriber = clients.resume(name)
        found = subscriber.expect_packet(Kind.PUBLISH)
        got.append(found.payload)
        subscriber.send(clients.build.pubrec(found.packet_id))
        subscriber.expect_ack(Kind.PUBREL, found.packet_id)
        broker.kill9()
        publisher = clients.resume(f"{name}-publisher")
        subscriber = clients.resume(name)
        subscriber.expect_ack(Kind.PUBREL, found.packet_id)
        subscriber.send(clients.build.pubcomp(found.packet_id))
        subscriber.fence()
    assert got == numbered(4)
    subscriber.expect_nothing()


def test_backlog_read_in_parts_through_kills(broker: Broker, clients: Clients, name: str) -> None:
    """Each life of the broker delivers a part; together they deliver all of it, in order."""
    clients.durable(name, (name, 1)).disconnect()
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, name, numbered(1000), qos=1)
    publisher.take(Kind.PUBACK, 1000)
    done = 0
    for part in (1, 250, 500):
        again = clients.resume(name)
        found = take_publishes(again, part)
        assert payloads_of(found) == numbered(part, done)
        again.send(*(clients.build.puback(packet.packet_id) for packet in found))
        again.fence()
        done += part
        clients.settle()
        broker.kill9()
    again = clients.resume(name)
    rest = take_publishes(again, 1000 - done)
    assert payloads_of(rest) == numbered(1000 - done, done)
