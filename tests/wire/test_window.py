"""A small inflight window: how the broker paces QoS 1 and 2 towards a 3.1.1 client.

3.1.1 leaves the number of messages in flight to the server (4.6, non-normative comment). Mosquitto
sends one more than its setting says once the first is acknowledged.
"""

from __future__ import annotations

import pytest

from tests.wire.clients import (
    Clients,
    numbered,
    payloads_of,
    send_publishes,
    take_publishes,
)
from tests.wire.harness import Options
from tests.wire.packets import Kind

WINDOW = 3
BROKER_OPTIONS = Options(
    settings={"session.inflight_max": str(WINDOW)},
    mosquitto=(f"max_inflight_messages {WINDOW}", "max_queued_messages 0"),
)


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_than_the_window(clients: Clients, name: str, qos: int) -> None:
    """The next one comes when one is settled: PUBACK, or PUBCOMP and not PUBREC."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, qos))
    for payload in numbered(10):
        publisher.publish(name, payload, qos=qos)
    in_flight = take_publishes(peer, WINDOW)
    peer.expect_nothing()
    got = payloads_of(in_flight)
    for _ in range(10 - WINDOW):
        first = in_flight.pop(0)
        if qos == 1:
            peer.send(clients.build.puback(first.packet_id))
        else:
            peer.send(clients.build.pubrec(first.packet_id))
            peer.expect_ack(Kind.PUBREL, first.packet_id)
            peer.expect_nothing()
            peer.send(clients.build.pubcomp(first.packet_id))
        in_flight += take_publishes(peer, 1)
        got.append(in_flight[-1].payload)
        peer.expect_nothing()
    assert got == numbered(10)


@pytest.mark.trap(19)
def test_any_acknowledgement_makes_room(clients: Clients, name: str) -> None:
    """The oldest message need not be the first that is acknowledged."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((name, 1))
    for payload in numbered(50):
        publisher.publish(name, payload, qos=1)
    held, *others = take_publishes(peer, WINDOW)
    got = [held.payload, *payloads_of(others)]
    while others:
        peer.send(clients.build.puback(others.pop().packet_id))
        if len(got) < 50:
            found = peer.expect_packet(Kind.PUBLISH, dup=False)
            assert found.packet_id != held.packet_id
            got.append(found.payload)
            others.append(found)
    assert got == numbered(50)
    peer.send(clients.build.puback(held.packet_id))
    peer.expect_nothing()


@pytest.mark.trap(13)
def test_qos_0_passes_a_full_window(clients: Clients, name: str) -> None:
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    peer.subscribe((f"{name}/1", 1), (f"{name}/0", 0))
    for payload in numbered(5):
        publisher.publish(f"{name}/1", payload, qos=1)
    in_flight = take_publishes(peer, WINDOW)
    publisher.publish(f"{name}/0", b"free", qos=0)
    peer.receive_publish(f"{name}/0", b"free", qos=0)
    peer.send(*(clients.build.puback(found.packet_id) for found in in_flight))
    assert payloads_of(take_publishes(peer, 2)) == numbered(2, 3)


@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(5)
@pytest.mark.parametrize("qos", [1, 2])
def test_resume_with_a_full_window(clients: Clients, name: str, qos: int) -> None:
    """What was in flight comes first, with DUP; the rest follows as room is made, unskipped."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.durable(name, (name, qos))
    for payload in numbered(12):
        publisher.publish(name, payload, qos=qos)
    for _ in range(4):
        found = take_publishes(peer, WINDOW)
        assert payloads_of(found) == numbered(WINDOW)
        peer.expect_nothing()
        peer.close()
        peer = clients.resume(name)
    for index, payload in enumerate(numbered(12)):
        assert peer.receive_publish(name, payload, qos=qos).dup is (index < WINDOW)
    peer.expect_nothing()


@pytest.mark.trap(30)
def test_backlog_streams_through_the_window(clients: Clients, name: str) -> None:
    """A thousand pending messages through three places, pipelined."""
    clients.durable(name, (name, 1)).disconnect()
    publisher = clients.join(f"{name}-publisher")
    send_publishes(publisher, name, numbered(1000), qos=1)
    publisher.take(Kind.PUBACK, 1000)
    peer = clients.resume(name)
    for payload in numbered(1000):
        peer.receive_publish(name, payload, qos=1, dup=False)
    peer.expect_nothing()


@pytest.mark.trap(18)
def test_downgrade_does_not_block_the_window(clients: Clients, name: str) -> None:
    """In flight at QoS 1 when the subscription becomes QoS 0: the window is free after PUBACK."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name)
    for round_ in range(10):
        peer.subscribe((name, 1))
        for payload in numbered(WINDOW):
            publisher.publish(name, payload, qos=1)
        found = take_publishes(peer, WINDOW)
        peer.subscribe((name, 0))
        publisher.publish(name, b"%d" % round_, qos=1)
        peer.receive_publish(name, b"%d" % round_, qos=0)
        peer.send(*(clients.build.puback(packet.packet_id) for packet in found))
    peer.expect_nothing()


def test_window_is_per_client(clients: Clients, name: str) -> None:
    publisher = clients.join(f"{name}-publisher")
    stuck, free = clients.join(f"{name}-stuck"), clients.join(f"{name}-free")
    stuck.subscribe((name, 1))
    free.subscribe((name, 1))
    for payload in numbered(20):
        publisher.publish(name, payload, qos=1)
        free.receive_publish(name, payload, qos=1)
    take_publishes(stuck, WINDOW)
    stuck.expect_nothing()
