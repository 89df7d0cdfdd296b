"""MQTT 3.1.1, section 4.1 and 4.5: what was acknowledged outlives the broker's process.

Each case kills the broker with SIGKILL, or stops it, between two steps. Mosquitto writes its
state at intervals and fails most of these when it is killed.
"""

from __future__ import annotations

import pytest

from tests.wire.clients import (
    UNLIMITED,
    Clients,
    numbered,
    take_publishes,
)
from tests.wire.harness import Broker
from tests.wire.packets import Kind, Will

BROKER_OPTIONS = UNLIMITED

both = pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.sockets), "stop"])


def die(broker: Broker, how: str) -> None:
    """The process ends and a new one takes over its data and port."""
    if how == "kill":
        broker.kill9()
    else:
        broker.restart()


@both
@pytest.mark.spec("MQTT-4.1.0-1@3.1.1")
@pytest.mark.spec("MQTT-4.5.0-1@3.1.1")
@pytest.mark.trap(26)
@pytest.mark.trap(32)
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("online", [False, True])
def test_acknowledged_messages_survive(
    broker: Broker, clients: Clients, name: str, how: str, qos: int, online: bool
) -> None:
    """All of them, once, in order; what was sent before has DUP."""
    subscriber = clients.durable(name, (f"{name}/#", qos))
    if not online:
        subscriber.disconnect()
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(50):
        publisher.publish(f"{name}/t", payload, qos=qos)
    if online:
        take_publishes(subscriber, 50)
    die(broker, how)
    again = clients.resume(name)
    for payload in numbered(50):
        found = again.receive_publish(f"{name}/t", payload, qos=qos)
        assert found.dup or not online
    again.publish(f"{name}/t", b"end", qos=qos)
    again.receive_publish(f"{name}/t", b"end", qos=qos, dup=False)


@pytest.mark.spec("MQTT-4.4.0-1")
@both
@pytest.mark.spec("MQTT-4.4.0-1@3.1.1")
@pytest.mark.trap(3)
@pytest.mark.parametrize("qos", [1, 2])
def test_identifiers_survive(
    broker: Broker, clients: Clients, name: str, how: str, qos: int
) -> None:
    """The same messages under the same identifiers; new ones take others."""
    subscriber = clients.durable(name, (name, qos))
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(10):
        publisher.publish(name, payload, qos=qos)
    before = [(found.packet_id, found.payload) for found in take_publishes(subscriber, 10)]
    die(broker, how)
    again = clients.resume(name)
    after = take_publishes(again, 10)
    assert [(found.packet_id, found.payload) for found in after] == before
    assert all(found.dup for found in after)
    again.publish(name, b"new", qos=qos)
    fresh = again.take(Kind.PUBLISH)
    assert fresh.payload == b"new"
    assert not fresh.dup
    assert fresh.packet_id not in {packet_id for packet_id, _ in before}


@both
@pytest.mark.trap(19)
def test_acknowledgements_out_of_order_survive(
    broker: Broker, clients: Clients, name: str, how: str
) -> None:
    """What was acknowledged is not sent again, wherever it stands in the order."""
    subscriber = clients.durable(name, (name, 1))
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(20):
        publisher.publish(name, payload, qos=1)
    found = take_publishes(subscriber, 20)
    subscriber.send(*(clients.build.puback(found[place].packet_id) for place in range(19, 0, -2)))
    subscriber.fence()
    clients.settle()
    die(broker, how)
    again = clients.resume(name)
    for place in range(0, 20, 2):
        again.receive_publish(
            name, found[place].payload, dup=True, packet_id=found[place].packet_id
        )
    again.publish(name, b"end", qos=1)
    again.receive_publish(name, b"end", dup=False)


@pytest.mark.trap(16)
@both
@pytest.mark.spec("MQTT-4.3.3-1@3.1.1")
@pytest.mark.trap(12)
def test_outbound_release_survives(broker: Broker, clients: Clients, name: str, how: str) -> None:
    """Past its PUBREC a message is never sent again, only its PUBREL."""
    subscriber = clients.durable(name, (name, 2))
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(6):
        publisher.publish(name, payload, qos=2)
    found = take_publishes(subscriber, 6)
    released = [packet.packet_id for packet in found[1::2]]
    subscriber.send(*(clients.build.pubrec(packet_id) for packet_id in released))
    for packet_id in released:
        subscriber.expect_ack(Kind.PUBREL, packet_id)
    die(broker, how)
    again = clients.resume(name)
    expected = {packet.packet_id: Kind.PUBLISH for packet in found[::2]}
    expected |= dict.fromkeys(released, Kind.PUBREL)
    for _ in range(6):
        packet = again.receive()
        assert packet is not None
        assert packet.kind is expected.pop(packet.packet_id)
        if packet.kind is Kind.PUBREL:
            again.send(clients.build.pubcomp(packet.packet_id))
        else:
            again.send(clients.build.pubrec(packet.packet_id))
            again.take(Kind.PUBREL, packet.packet_id)
            again.send(clients.build.pubcomp(packet.packet_id))
    again.publish(name, b"end", qos=2)
    again.receive_publish(name, b"end", qos=2, dup=False)


@both
@pytest.mark.spec("MQTT-4.3.3-2@3.1.1")
@pytest.mark.trap(10)
@pytest.mark.parametrize("online", [False, True])
def test_inbound_identifier_survives(
    broker: Broker, clients: Clients, name: str, how: str, online: bool
) -> None:
    """After PUBREC a copy of the PUBLISH is no new message, whatever happened to the broker."""
    subscriber = clients.durable(f"{name}-subscriber", (name, 2))
    if not online:
        subscriber.disconnect()
    publisher = clients.durable(name)
    publisher.send(clients.build.publish(name, b"once", qos=2, packet_id=21))
    publisher.expect_ack(Kind.PUBREC, 21)
    die(broker, how)
    again = clients.resume(name)
    again.send(clients.build.publish(name, b"once", qos=2, packet_id=21, dup=True))
    again.expect_ack(Kind.PUBREC, 21)
    again.send(clients.build.pubrel(21))
    again.expect_ack(Kind.PUBCOMP, 21)
    again.publish(name, b"end", qos=2)
    back = clients.resume(f"{name}-subscriber")
    back.receive_publish(name, b"once", qos=2)
    back.receive_publish(name, b"end", qos=2)


@both
def test_released_identifier_is_forgotten(
    broker: Broker, clients: Clients, name: str, how: str
) -> None:
    """After PUBCOMP the same identifier is a new message."""
    publisher = clients.durable(name)
    subscriber = clients.durable(f"{name}-subscriber", (name, 2))
    for payload in numbered(3):
        publisher.send(clients.build.publish(name, payload, qos=2, packet_id=8))
        publisher.expect_ack(Kind.PUBREC, 8)
        publisher.send(clients.build.pubrel(8))
        publisher.expect_ack(Kind.PUBCOMP, 8)
        subscriber.receive_publish(name, payload, qos=2)
    subscriber.fence()
    clients.settle()
    die(broker, how)
    again = clients.resume(name)
    again.send(clients.build.publish(name, b"new", qos=2, packet_id=8))
    again.expect_ack(Kind.PUBREC, 8)
    again.send(clients.build.pubrel(8))
    again.expect_ack(Kind.PUBCOMP, 8)
    clients.resume(f"{name}-subscriber").receive_publish(name, b"new", qos=2)


@both
@pytest.mark.trap(16)
@pytest.mark.trap(51)
def test_subscriptions_survive(broker: Broker, clients: Clients, name: str, how: str) -> None:
    """Each with its last QoS, as acknowledged; and not those that were given up."""
    filters = [(f"{name}/0", 0), (f"{name}/1", 1), (f"{name}/2", 2), (f"{name}/+/x", 2)]
    peer = clients.durable(name, *filters, (f"{name}/gone", 1))
    peer.subscribe((f"{name}/1", 2))
    peer.unsubscribe(f"{name}/gone")
    die(broker, how)
    again = clients.resume(name)
    for topic, qos in ((f"{name}/0", 0), (f"{name}/1", 2), (f"{name}/2", 2), (f"{name}/q/x", 2)):
        again.publish(topic, b"x", qos=2)
        again.receive_publish(topic, b"x", qos=qos)
    again.publish(f"{name}/gone", b"x", qos=2)
    again.expect_nothing()


@both
@pytest.mark.spec("MQTT-3.3.1-5@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-10@3.1.1")
def test_retained_messages_survive(broker: Broker, clients: Clients, name: str, how: str) -> None:
    """The last one of each topic, and not those that were cleared."""
    publisher = clients.join(f"{name}-publisher")
    for payload in (b"old", b"new"):
        publisher.publish(f"{name}/kept", payload, qos=1, retain=True)
    publisher.publish(f"{name}/cleared", b"x", qos=1, retain=True)
    publisher.publish(f"{name}/cleared", b"", qos=1, retain=True)
    publisher.publish(f"{name}/twice", b"x", qos=2, retain=True)
    die(broker, how)
    peer = clients.join(name)
    peer.subscribe((f"{name}/#", 2))
    got = {found.topic: (found.payload, found.qos) for found in take_publishes(peer, 2)}
    assert got == {f"{name}/kept": (b"new", 1), f"{name}/twice": (b"x", 2)}
    peer.expect_nothing()


@both
@pytest.mark.spec("MQTT-3.1.2-6@3.1.1")
@pytest.mark.trap(46)
def test_discarded_session_stays_discarded(
    broker: Broker, clients: Clients, name: str, how: str
) -> None:
    """By CONNECT with clean session, connected or not when the broker ends."""
    for suffix in ("connected", "gone"):
        clients.durable(f"{name}-{suffix}", (name, 1)).disconnect()
    clients.join(f"{name}-connected", clean=True, present=False)
    clients.join(f"{name}-gone", clean=True, present=False).disconnect()
    clients.settle()
    die(broker, how)
    for suffix in ("connected", "gone"):
        again = clients.join(f"{name}-{suffix}", clean=False, present=False)
        again.publish(name, b"x", qos=1)
        again.expect_nothing()


@both
@pytest.mark.trap(50)
def test_connected_sessions_are_not_connected_any_more(
    broker: Broker, clients: Clients, name: str, how: str
) -> None:
    """A client that was connected when the broker ended is offline, and can come back."""
    clients.durable(name, (name, 1))
    die(broker, how)
    publisher = clients.join(f"{name}-publisher")
    for payload in numbered(5):
        publisher.publish(name, payload, qos=1)
    again = clients.resume(name)
    for payload in numbered(5):
        again.receive_publish(name, payload, qos=1, dup=False)


@both
@pytest.mark.spec("MQTT-3.3.1-5@3.1.1")
def test_retained_qos_0_survives(broker: Broker, clients: Clients, name: str, how: str) -> None:
    """3.3.1.3 lets a server discard it at any time; Perdure keeps what it had time to write."""
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(name, b"kept", qos=0, retain=True)
    clients.settle()
    die(broker, how)
    peer = clients.join(name)
    peer.subscribe((name, 0))
    peer.receive_publish(name, b"kept", qos=0, retain=True)


@both
@pytest.mark.spec("MQTT-3.1.2-8@3.1.1")
@pytest.mark.trap(44)
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("retain", [True, False])
def test_will_survives(
    broker: Broker, clients: Clients, name: str, how: str, clean: bool, retain: bool
) -> None:
    """3.1.2.5: after a failure or a stop the server may publish it late, but has to, once."""
    watcher = clients.durable(f"{name}-watcher", (f"{name}/will", 1))
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1, retain=retain)
    clients.join(name, clean=clean, will=will)
    watcher.fence()
    die(broker, how)
    again = clients.resume(f"{name}-watcher")
    again.receive_publish(f"{name}/will", b"gone", qos=1)
    again.publish(f"{name}/will", b"end", qos=1)
    again.receive_publish(f"{name}/will", b"end", qos=1)
    late = clients.join(f"{name}-late")
    late.subscribe((f"{name}/will", 1))
    if retain:
        late.receive_publish(f"{name}/will", b"gone", retain=True)
    late.expect_nothing()


@pytest.mark.spec("MQTT-3.14.4-3@3.1.1")
def test_discarded_will_stays_discarded(broker: Broker, clients: Clients, name: str) -> None:
    watcher = clients.durable(f"{name}-watcher", (f"{name}/will", 1))
    will = Will(topic=f"{name}/will", payload=b"gone", qos=1)
    clients.join(name, clean=False, will=will).disconnect()
    watcher.fence()
    clients.settle()
    broker.kill9()
    again = clients.resume(f"{name}-watcher")
    again.publish(f"{name}/will", b"end", qos=1)
    again.receive_publish(f"{name}/will", b"end", qos=1)
