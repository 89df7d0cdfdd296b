"""Limits that a broker sets for itself, and how a 3.1.1 client is told of them.

This version has return codes in CONNACK and 0x80 in SUBACK; everything else is the close.
Mosquitto has settings for few of these.
"""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients, numbered
from tests.wire.harness import Options
from tests.wire.packets import V3, Kind, Will, packet, varint
from tests.wire.v3.codes import BAD_IDENTIFIER, FAILURE

SIZE_MAX = 2048

BROKER_OPTIONS = Options(
    settings={
        "mqtt.packet_size_max": str(SIZE_MAX),
        "mqtt.maximum_qos": "1",
        "mqtt.topic_levels_max": "5",
        "mqtt.client_id_bytes_max": "30",
        "mqtt.allow_empty_client_id": "false",
        "mqtt.shared_subscription_available": "false",
        "mqtt.wildcard_subscription_available": "false",
        "session.subscriptions_max": "3",
        "session.pending_messages_max": "10",
    },
    mosquitto=(
        f"max_packet_size {SIZE_MAX}",
        "max_qos 1",
        "allow_zero_length_clientid false",
        "max_queued_messages 10",
    ),
)


@pytest.mark.parametrize("excess", [0, 1, 1000])
def test_packet_size(clients: Clients, name: str, excess: int) -> None:
    """The limit counts the whole packet, fixed header included."""
    peer = clients.join(name)
    payload = b"s" * (SIZE_MAX + excess - 3 - 2 - len(name) - 2)
    raw = V3.publish(name, payload, qos=1)
    assert len(raw) == SIZE_MAX + excess
    peer.send(raw)
    if excess:
        peer.expect_closed()
    else:
        peer.expect(V3.puback(1))


@pytest.mark.parametrize("length", [SIZE_MAX, 100_000, 268_435_455])
@pytest.mark.parametrize("first", [0x30, 0x32, 0x82, 0xA2])
def test_packet_size_is_told_from_the_header(
    clients: Clients, name: str, first: int, length: int
) -> None:
    """Closed at once: the body is not waited for, and no memory is set aside for it."""
    peer = clients.join(name)
    peer.send(bytes([first]) + varint(length))
    peer.expect_closed()


def test_connect_above_the_packet_size(clients: Clients, name: str) -> None:
    peer = clients.peer()
    peer.send(V3.connect(name, will=Will(topic="w", payload=b"x" * SIZE_MAX)))
    found = peer.receive()
    if found is not None:
        assert found.kind is Kind.CONNACK
        assert found.reason
        peer.expect_closed()


@pytest.mark.parametrize("length", [30, 31, 1000])
def test_length_of_client_id(clients: Clients, name: str, length: int) -> None:
    """[MQTT-3.1.3-9]: return code 2, then the close; 23 and fewer bytes are always allowed."""
    client_id = name + "i" * (length - len(name))
    peer = clients.peer()
    peer.send(V3.connect(client_id))
    if length > 30:
        peer.expect_refused_connect(BAD_IDENTIFIER)
    else:
        peer.expect_connack(0)


@pytest.mark.spec("MQTT-3.1.3-9@3.1.1")
def test_no_empty_client_id(clients: Clients) -> None:
    peer = clients.peer()
    peer.send(V3.connect("", clean=True))
    peer.expect_refused_connect(BAD_IDENTIFIER)


@pytest.mark.spec("MQTT-3.8.4-6@3.1.1")
def test_granted_qos_is_lowered(clients: Clients, name: str) -> None:
    """A server may grant less than was asked for, and says so in SUBACK."""
    peer = clients.join(name)
    peer.subscribe((f"{name}/2", 2), (f"{name}/1", 1), (f"{name}/0", 0), codes=(1, 1, 0))
    peer.publish(f"{name}/2", b"x", qos=1)
    peer.receive_publish(f"{name}/2", b"x", qos=1)


def test_publish_above_the_maximum_qos(clients: Clients, name: str) -> None:
    """There is no code for it in this version."""
    peer = clients.join(name)
    peer.send(V3.publish(name, b"x", qos=2))
    peer.expect_closed()


def test_will_above_the_maximum_qos(clients: Clients, name: str) -> None:
    peer = clients.peer()
    peer.send(V3.connect(name, will=Will(topic="w", qos=2)))
    found = peer.receive()
    if found is not None:
        assert found.kind is Kind.CONNACK
        assert found.reason
        peer.expect_closed()


@pytest.mark.spec("MQTT-3.9.3-2@3.1.1")
def test_number_of_subscriptions(clients: Clients, name: str) -> None:
    """0x80 for each filter beyond; replacing one is not adding one."""
    peer = clients.join(name)
    filters = [(f"{name}/{index}", 1) for index in range(5)]
    peer.subscribe(*filters, codes=(1, 1, 1, FAILURE, FAILURE))
    peer.subscribe((f"{name}/0", 0), codes=(0,))
    peer.publish(f"{name}/4", b"x", qos=1)
    peer.expect_nothing()
    peer.unsubscribe(f"{name}/0")
    peer.subscribe((f"{name}/4", 1), codes=(1,))
    peer.publish(f"{name}/4", b"x", qos=1)
    peer.receive_publish(f"{name}/4", b"x", qos=1)


@pytest.mark.spec("MQTT-3.9.3-2@3.1.1")
@pytest.mark.parametrize(
    "topic_filter", ["a/b/c/d/e/f", "+/+/+/+/+/+", "a/b/c/d/e/#", "$share/g/t"]
)
def test_filter_that_is_not_offered(clients: Clients, name: str, topic_filter: str) -> None:
    """Correct, but too deep or shared: 0x80, and the connection stands."""
    peer = clients.join(name)
    peer.subscribe((name, 1), (topic_filter, 1), codes=(1, FAILURE))
    peer.publish(name, b"x", qos=1)
    peer.receive_publish(name, b"x", qos=1)


@pytest.mark.spec("MQTT-3.8.3-2@3.1.1")
@pytest.mark.parametrize("topic_filter", ["#", "+", "a/#", "a/+/b"])
def test_no_wildcards(clients: Clients, name: str, topic_filter: str) -> None:
    """A server that does not support filters with wildcards must refuse each of them."""
    peer = clients.join(name)
    peer.subscribe((topic_filter, 1), (name, 0), codes=(FAILURE, 0))
    peer.publish(name, b"x", qos=1)
    peer.receive_publish(name, b"x", qos=0)


def test_topic_that_is_too_deep(clients: Clients, name: str) -> None:
    peer = clients.join(name)
    peer.publish("a/b/c/d/e", b"x", qos=1)
    peer.send(V3.publish("a/b/c/d/e/f", b"x", qos=1))
    peer.expect_closed()


@pytest.mark.trap(24)
def test_number_of_pending_messages(clients: Clients, name: str) -> None:
    """The oldest make room for the newest; QoS 0 is not counted. Mosquitto drops the newest."""
    clients.durable(name, (name, 1)).disconnect()
    publisher = clients.join(f"{name}-publisher")
    for index, payload in enumerate(numbered(25)):
        publisher.publish(name, payload, qos=1)
        publisher.publish(name, b"%d" % index, qos=0)
    again = clients.resume(name)
    for payload in numbered(10, 15):
        again.receive_publish(name, payload, qos=1)
    publisher.publish(name, b"live", qos=1)
    again.receive_publish(name, b"live", qos=1)


def test_limit_of_pending_messages_is_for_each_client(clients: Clients, name: str) -> None:
    """One client that is behind takes nothing from another one that is not."""
    clients.durable(f"{name}-behind", (name, 1)).disconnect()
    peer = clients.durable(name, (name, 1))
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(40):
        publisher.publish(name, payload, qos=1)
        peer.receive_publish(name, payload, qos=1)


def test_small_packets_of_unknown_types_are_refused_as_ever(clients: Clients, name: str) -> None:
    peer = clients.join(name)
    peer.send(packet(0xF0))
    peer.expect_closed()
