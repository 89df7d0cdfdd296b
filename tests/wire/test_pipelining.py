"""Packets of one client that arrive together: each is handled as if it had come alone.

3.1.4 lets a client send without waiting for answers; 3.8.4 and 3.10.4 say what a subscription
changes, and for which messages.
"""

from __future__ import annotations

import pytest

from tests import servers
from tests.wire.clients import UNLIMITED, Clients
from tests.wire.harness import Broker
from tests.wire.packets import Kind
from tests.wire.peer import Peer

BROKER_OPTIONS = UNLIMITED


def message(
    clients: Clients, topic: str, payload: bytes, qos: int, *, retain: bool = False
) -> bytes:
    """A whole message of a client that waits for nothing."""
    raw = clients.build.publish(
        topic, payload, qos=qos, packet_id=9 if qos else None, retain=retain
    )
    return raw + clients.build.pubrel(9) if qos == 2 else raw


def messages_until(
    broker: Broker, peer: Peer, answer: Kind, packet_id: int, topic: str
) -> list[tuple[bytes, int]]:
    """What comes up to the answer and right after it: payload and QoS, then RETAIN as 10.

    A message on the topic's end marks the place up to which everything has come.
    """
    peer.take(answer, packet_id)
    if servers.BACKEND != "rocksdb":
        broker.elapse(0.3)  # retained messages are read there: nothing orders them before the end
    peer.subscribe((f"{topic}/end", 1))
    peer.publish(f"{topic}/end", b"end", qos=1)
    found = []
    while (packet := peer.take(Kind.PUBLISH)).payload != b"end":
        found.append((packet.payload, packet.qos + 10 * packet.retain))
        peer.acknowledge(packet)
    peer.acknowledge(packet)
    return found


@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_before_subscribe(
    broker: Broker, clients: Clients, name: str, qos: int, clean: bool
) -> None:
    """A message is not for a subscription that comes after it."""
    peer = clients.join(name, clean=clean)
    peer.send(message(clients, name, b"x", qos), clients.build.subscribe((name, 2), packet_id=50))
    assert messages_until(broker, peer, Kind.SUBACK, 50, name) == []


@pytest.mark.spec("MQTT-3.3.1-6@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_before_subscribe(
    broker: Broker, clients: Clients, name: str, qos: int, clean: bool
) -> None:
    """It comes once, as the retained message that it is by then."""
    peer = clients.join(name, clean=clean)
    peer.send(
        message(clients, name, b"x", qos, retain=True),
        clients.build.subscribe((name, 2), packet_id=50),
    )
    assert messages_until(broker, peer, Kind.SUBACK, 50, name) == [(b"x", qos + 10)]


@pytest.mark.spec("MQTT-3.3.1-10@3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_clear_before_subscribe(broker: Broker, clients: Clients, name: str, qos: int) -> None:
    """Cleared is cleared, however short before."""
    peer = clients.join(name)
    peer.publish(name, b"kept", qos=1, retain=True)
    peer.send(
        message(clients, name, b"", qos, retain=True),
        clients.build.subscribe((name, 2), packet_id=50),
    )
    assert messages_until(broker, peer, Kind.SUBACK, 50, name) == []


@pytest.mark.spec("MQTT-3.10.4-2@3.1.1")
@pytest.mark.spec("MQTT-3.10.4-3@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_before_unsubscribe(
    broker: Broker, clients: Clients, name: str, qos: int, clean: bool
) -> None:
    """The subscription still held when the message came."""
    peer = clients.join(name, clean=clean)
    peer.subscribe((name, 2))
    peer.send(message(clients, name, b"x", qos), clients.build.unsubscribe(name, packet_id=50))
    assert messages_until(broker, peer, Kind.UNSUBACK, 50, name) == [(b"x", qos)]


@pytest.mark.spec("MQTT-3.10.4-2@3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_behind_unsubscribe(broker: Broker, clients: Clients, name: str, qos: int) -> None:
    peer = clients.join(name)
    peer.subscribe((name, 2))
    peer.send(clients.build.unsubscribe(name, packet_id=50), message(clients, name, b"x", qos))
    assert messages_until(broker, peer, Kind.UNSUBACK, 50, name) == []


@pytest.mark.spec("MQTT-3.8.4-3@3.1.1")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_around_a_change_of_qos(
    broker: Broker, clients: Clients, name: str, qos: int, clean: bool
) -> None:
    """Each message by the maximum that held for it."""
    peer = clients.join(name, clean=clean)
    peer.subscribe((name, 2))
    peer.send(
        message(clients, name, b"before", qos),
        clients.build.subscribe((name, 0), packet_id=50),
        clients.build.publish(name, b"behind", qos=1, packet_id=10),
    )
    found = messages_until(broker, peer, Kind.SUBACK, 50, name)
    assert sorted(found) == [(b"before", qos), (b"behind", 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_many_changes(broker: Broker, clients: Clients, name: str, clean: bool) -> None:
    """Subscriptions, their ends and messages in between, all in one segment."""
    peer = clients.join(name, clean=clean)
    pieces = []
    for index in range(50):
        pieces += [
            clients.build.publish(
                name, b"no", qos=index % 2, packet_id=1000 if index % 2 else None
            ),
            clients.build.subscribe((name, 1), packet_id=100 + index),
            clients.build.publish(
                name, b"%d" % index, qos=index % 2, packet_id=1 if index % 2 else None
            ),
            clients.build.unsubscribe(name, packet_id=200 + index),
        ]
    peer.send(*pieces)
    for index in range(50):
        peer.take(Kind.SUBACK, 100 + index)
    found = messages_until(broker, peer, Kind.UNSUBACK, 249, name)
    assert found == [(b"%d" % index, index % 2) for index in range(50)]


@pytest.mark.spec("MQTT-3.1.2-5@3.1.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_publish_to_oneself_and_leave(clients: Clients, name: str, qos: int) -> None:
    """The message waits in the session that its own publisher has left."""
    peer = clients.durable(name, (name, 2))
    peer.send(message(clients, name, b"x", qos), clients.build.disconnect())
    peer.half_close()
    while peer.receive() is not None:
        pass
    again = clients.resume(name)
    assert again.take(Kind.PUBLISH).payload == b"x"


def test_subscribe_and_publish_in_one_segment(clients: Clients, name: str) -> None:
    """The subscription holds for the publish behind it."""
    peer = clients.join(name)
    for index in range(1, 30):
        topic = f"{name}/{index}"
        peer.send(
            clients.build.subscribe((topic, 1), packet_id=index),
            clients.build.publish(topic, b"x", qos=1, packet_id=index),
        )
        peer.take(Kind.SUBACK, index)
        peer.take(Kind.PUBACK, index)
        found = peer.take(Kind.PUBLISH)
        assert (found.topic, found.payload) == (topic, b"x")
        peer.send(clients.build.puback(found.packet_id))
