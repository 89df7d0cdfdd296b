"""MQTT 3.1.1 and 5.0 clients of one broker: messages, sessions and takeovers cross over."""

from __future__ import annotations

import pytest

from tests.wire.clients import UNLIMITED, Clients, numbered
from tests.wire.harness import Broker
from tests.wire.packets import V3, V5, Kind, Prop, Properties, Reason, Value, Will

BROKER_OPTIONS = UNLIMITED

PROPERTIES: list[tuple[int, Value]] = [
    (Prop.PAYLOAD_FORMAT, 1),
    (Prop.MESSAGE_EXPIRY, 600),
    (Prop.CONTENT_TYPE, "text/plain"),
    (Prop.RESPONSE_TOPIC, "answers"),
    (Prop.CORRELATION_DATA, b"\x00\x01"),
    (Prop.USER, ("key", "value")),
]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("properties", [[], PROPERTIES], ids=["plain", "properties"])
@pytest.mark.parametrize("way", ["live", "offline", "retained"])
def test_message_of_5_0_to_3_1_1(
    broker: Broker, clients: Clients, name: str, way: str, properties: Properties, qos: int
) -> None:
    """Without its properties, byte for byte a 3.1.1 packet."""
    publisher = broker.connect(f"{name}-publisher")
    peer = clients.durable(name, (name, 2)) if way != "retained" else clients.join(name)
    if way == "offline":
        peer.disconnect()
    publisher.publish(name, b"x", qos=qos, retain=way == "retained", properties=properties)
    if way == "offline":
        if not qos:
            return
        peer = clients.resume(name)
    elif way == "retained":
        peer.subscribe((name, 2))
    found = peer.receive_publish(name, b"x", qos=qos, retain=way == "retained")
    assert found.raw == V3.publish(
        name,
        b"x",
        qos=qos,
        packet_id=found.packet_id if qos else None,
        retain=way == "retained",
    )
    peer.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("way", ["live", "offline", "retained"])
def test_message_of_3_1_1_to_5_0(
    broker: Broker, clients: Clients, name: str, way: str, qos: int
) -> None:
    """With an empty property field, or the subscription's identifier alone."""
    publisher = clients.join(f"{name}-publisher")
    peer = broker.connect(name, expiry=60)
    identifier = [(Prop.SUBSCRIPTION_ID, 7)] if qos else []
    if way != "retained":
        peer.subscribe((name, 2), properties=identifier)
    if way == "offline":
        peer.disconnect()
    publisher.publish(name, b"x", qos=qos, retain=way == "retained")
    if way == "offline":
        if not qos:
            return
        peer = broker.connect(name, clean=False, expiry=60, session_present=True)
    elif way == "retained":
        peer.subscribe((name, 2), properties=identifier)
    found = peer.receive_publish(name, b"x", qos=qos, retain=way == "retained")
    assert found.properties == identifier


def test_topic_alias_is_resolved(broker: Broker, clients: Clients, name: str) -> None:
    """A 5.0 publisher's alias is its own affair."""
    peer = clients.join(name)
    peer.subscribe((name, 1))
    publisher = broker.connect(f"{name}-publisher")
    publisher.publish(name, b"1", qos=1, properties=[(Prop.TOPIC_ALIAS, 1)])
    publisher.publish("", b"2", qos=1, properties=[(Prop.TOPIC_ALIAS, 1)])
    for payload in (b"1", b"2"):
        peer.receive_publish(name, payload, qos=1)


@pytest.mark.trap(42)
@pytest.mark.parametrize("clean", [True, False])
def test_3_1_1_takes_5_0_over(broker: Broker, clients: Clients, name: str, clean: bool) -> None:
    """The 5.0 client is told by its own means, and the session goes on in the other version."""
    older = broker.connect(name, expiry=600)
    older.subscribe((name, 1), properties=[(Prop.SUBSCRIPTION_ID, 9)])
    newer = clients.join(name, clean=clean, present=not clean)
    older.expect_refusal(Reason.TAKEN_OVER)
    newer.publish(name, b"x", qos=1)
    if not clean:
        found = newer.receive_publish(name, b"x", qos=1)
        assert found.raw == V3.publish(name, b"x", qos=1, packet_id=found.packet_id)
    newer.expect_nothing()


@pytest.mark.parametrize("clean", [True, False])
def test_5_0_takes_3_1_1_over(broker: Broker, clients: Clients, name: str, clean: bool) -> None:
    older = clients.durable(name, (name, 1))
    newer = broker.connect(name, clean=clean, expiry=60, session_present=not clean)
    older.expect_closed()
    newer.publish(name, b"x", qos=1)
    if not clean:
        newer.receive_publish(name, b"x", qos=1)
    newer.expect_nothing()


@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(3)
@pytest.mark.parametrize("order", [(4, 5), (5, 4)])
def test_unacknowledged_messages_change_version(
    broker: Broker, clients: Clients, name: str, order: tuple[int, int]
) -> None:
    """In flight in one version, sent again with DUP and the same identifier in the other."""
    publisher = clients.join(f"{name}-publisher")
    first = clients.durable(name, (name, 2)) if order[0] == 4 else broker.connect(name, expiry=60)
    if order[0] == 5:
        first.subscribe((name, 2))
    for payload in numbered(6):
        publisher.publish(name, payload, qos=1 + int(payload) % 2)
    sent = [first.expect_packet(Kind.PUBLISH) for _ in range(6)]
    first.send(first.build.pubrec(sent[1].packet_id))
    first.take(Kind.PUBREL, sent[1].packet_id)
    first.abort()
    second = broker.connect(
        name,
        version=order[1],
        clean=False,
        expiry=60 if order[1] == 5 else None,
        session_present=True,
    )
    for before in sent:
        if before is sent[1]:
            second.expect_packet(Kind.PUBREL, packet_id=before.packet_id)
        else:
            second.expect_publish(
                name, before.payload, qos=before.qos, dup=True, packet_id=before.packet_id
            )
    second.expect_nothing()


@pytest.mark.parametrize("will_version", [4, 5])
def test_will_crosses_over(broker: Broker, clients: Clients, name: str, will_version: int) -> None:
    watchers = [clients.join(f"{name}-3"), broker.connect(f"{name}-5")]
    for watcher in watchers:
        watcher.subscribe((f"{name}/will", 1))
    properties = [(Prop.USER, ("a", "b"))] if will_version == 5 else []
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1, properties=properties)
    broker.connect(name, version=will_version, will=will).abort()
    for watcher in watchers:
        watcher.receive_publish(f"{name}/will", b"gone", qos=1)


@pytest.mark.trap(36)
def test_one_shared_group_of_both(broker: Broker, clients: Clients, name: str) -> None:
    peers = [clients.join(f"{name}-3"), broker.connect(f"{name}-5")]
    for peer in peers:
        peer.subscribe((f"$share/g/{name}", 1))
    publisher = clients.join(name)
    for payload in numbered(10):
        publisher.publish(name, payload, qos=1)
    got: list[bytes] = []
    for peer in peers:
        messages = [found for found in peer.drain() if found.kind is Kind.PUBLISH]
        assert messages
        got += [found.payload for found in messages]
    assert sorted(got) == numbered(10)


def test_version_of_a_connection_holds(broker: Broker, clients: Clients, name: str) -> None:
    """5.0 packets on a 3.1.1 connection are malformed, and 3.1.1 packets on a 5.0 one too."""
    three = clients.join(f"{name}-3")
    three.send(V5.subscribe((name, 0x2C)))
    three.expect_closed()
    five = broker.connect(f"{name}-5")
    five.send(V3.unsubscribe(f"{name}"))
    five.expect_refusal(Reason.MALFORMED, Reason.PROTOCOL_ERROR)
