"""MQTT 5.0: user names, passwords and access rules (3.1.3.5, 3.1.4, 4.7.2)."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Reason, Will
from tests.wire.v5.users import WITH_USERS, ada, bob

BROKER_OPTIONS = WITH_USERS


@pytest.mark.parametrize("version", [4, 5])
def test_right_password(broker: Broker, name: str, version: int) -> None:
    peer = broker.connect(name, version=version, username="ada", password="correct horse")
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.1.4-2")
@pytest.mark.spec("MQTT-3.2.2-8")
@pytest.mark.spec("MQTT-3.2.2-7")
@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("ada", "wrong"),
        ("ada", ""),
        ("ada", "correct horse "),
        ("ADA", "correct horse"),
        ("nobody", "x"),
        ("ada", None),
        (None, "correct horse"),
        (None, None),
        ("", ""),
        ("bob", "correct horse"),
    ],
)
def test_wrong_credentials(
    broker: Broker, name: str, username: str | None, password: str | None
) -> None:
    peer = broker.peer()
    peer.send(V5.connect(name, username=username, password=password))
    peer.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)


@pytest.mark.spec("MQTT-3.1.4-6")
def test_nothing_is_processed_before_the_password_is_checked(broker: Broker, name: str) -> None:
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"{name}/#", 1))
    peer = broker.peer()
    peer.send(
        V5.connect(name, username="ada", password="wrong"),
        V5.publish(f"{name}/t", b"leaked", qos=1),
    )
    peer.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)
    watcher.publish(f"{name}/t", b"control", qos=1)
    watcher.receive_publish(f"{name}/t", b"control", qos=1)


def test_packets_behind_a_good_connect_wait_for_the_check(broker: Broker, name: str) -> None:
    """3.1.4: a client may send before the CONNACK; the order stays."""
    peer = broker.peer()
    peer.send(
        V5.connect(name, username="ada", password="correct horse"),
        V5.subscribe((f"{name}/t", 1), packet_id=3),
        V5.publish(f"{name}/t", b"x", qos=1, packet_id=4),
        V5.pingreq(),
    )
    peer.expect_connack(0)
    peer.take(Kind.SUBACK, 3)
    peer.take(Kind.PUBACK, 4)
    peer.take(Kind.PINGRESP)
    assert peer.take_publish().payload == b"x"


def test_refused_credentials_do_not_take_over(broker: Broker, name: str) -> None:
    first = ada(broker, name)
    second = broker.peer()
    second.send(V5.connect(name, username="ada", password="wrong"))
    second.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)
    first.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_publish_that_is_not_allowed(broker: Broker, name: str, qos: int) -> None:
    """3.4.2.1, 3.5.2.1: 0x87 in the acknowledgement; the connection goes on."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"news/{name}", 2))
    peer = bob(broker, name)
    peer.send(V5.publish(f"news/{name}", b"no", qos=qos, packet_id=5))
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    peer.expect_packet(kind, packet_id=5, reason=Reason.NOT_AUTHORIZED)
    peer.send(V5.publish(f"bob/{name}", b"yes", qos=qos, packet_id=5))
    assert peer.expect_packet(kind, packet_id=5).reason in (0, 0x10)
    watcher.publish(f"news/{name}", b"control", qos=1)
    watcher.receive_publish(f"news/{name}", b"control", qos=1)


def test_qos0_publish_that_is_not_allowed(broker: Broker, name: str) -> None:
    """There is no acknowledgement: dropped, or DISCONNECT 0x87; never delivered."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"news/{name}", 2))
    peer = bob(broker, name)
    peer.send(V5.publish(f"news/{name}", b"no"), V5.pingreq())
    found = peer.receive()
    assert found is not None
    assert found.kind is Kind.PINGRESP or found.reason == Reason.NOT_AUTHORIZED
    watcher.publish(f"news/{name}", b"control", qos=1)
    watcher.receive_publish(f"news/{name}", b"control", qos=1)


def test_subscription_that_is_not_allowed(broker: Broker, name: str) -> None:
    """Refused with 0x87, or granted and empty; another filter of the packet is not touched."""
    peer = bob(broker, name)
    peer.send(V5.subscribe((f"secret/{name}", 1), (f"bob/{name}", 1), packet_id=5))
    suback = peer.expect_packet(Kind.SUBACK, packet_id=5)
    assert suback.reasons in ((Reason.NOT_AUTHORIZED, 1), (1, 1))
    publisher = ada(broker, f"{name}-publisher")
    publisher.publish(f"secret/{name}", b"no", qos=1)
    publisher.publish(f"bob/{name}", b"yes", qos=1)
    peer.receive_publish(f"bob/{name}", b"yes", qos=1)


@pytest.mark.trap(54)
def test_delivery_is_checked_message_by_message(broker: Broker, name: str) -> None:
    """A wildcard covers more than may be read: only the allowed part comes."""
    peer = bob(broker, name)
    peer.send(V5.subscribe(("#", 1), packet_id=5))
    peer.take(Kind.SUBACK, 5)
    publisher = ada(broker, f"{name}-publisher")
    for topic in ("secret", "news", "inbox", "bob"):
        publisher.publish(f"{topic}/{name}", b"x", qos=1)
    topics = [message.topic for message in peer.drain() if name in message.topic]
    assert topics in ([f"news/{name}", f"bob/{name}"], [])


@pytest.mark.trap(54)
def test_retained_and_offline_messages_are_checked(broker: Broker, name: str) -> None:
    publisher = ada(broker, f"{name}-publisher")
    publisher.publish(f"secret/{name}", b"no", qos=1, retain=True)
    publisher.publish(f"news/{name}", b"yes", qos=1, retain=True)
    peer = bob(broker, name, expiry=60)
    peer.send(V5.subscribe((f"+/{name}", 1), packet_id=5))
    suback = peer.take(Kind.SUBACK, 5)
    if suback.reasons == (1,):
        peer.receive_publish(f"news/{name}", b"yes", qos=1, retain=True)
        peer.expect_nothing()
        peer.disconnect()
        publisher.publish(f"secret/{name}", b"no", qos=1)
        publisher.publish(f"news/{name}", b"offline", qos=1)
        again = bob(broker, name, clean=False, expiry=60)
        again.receive_publish(f"news/{name}", b"offline", qos=1)
        again.expect_nothing()
    for topic in ("secret", "news"):
        publisher.publish(f"{topic}/{name}", b"", retain=True)


@pytest.mark.parametrize("qos", [0, 1])
def test_will_that_is_not_allowed(broker: Broker, name: str, qos: int) -> None:
    """Refused at CONNECT with 0x87, or accepted and never published."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"news/{name}", 1))
    peer = broker.peer()
    will = Will(topic=f"news/{name}", payload=b"no", qos=qos)
    peer.send(V5.connect(name, username="bob", password="päss wörd", will=will))
    found = peer.expect_packet(Kind.CONNACK)
    assert found.reason in (0, Reason.NOT_AUTHORIZED)
    peer.close()
    watcher.publish(f"news/{name}", b"control", qos=1)
    watcher.receive_publish(f"news/{name}", b"control", qos=1)


def test_pattern_of_the_client_id(broker: Broker, name: str) -> None:
    peer = bob(broker, name)
    peer.publish(f"own/{name}/t", b"x", qos=1)
    peer.send(V5.publish(f"own/other{name}/t", b"x", qos=1, packet_id=9))
    peer.expect_packet(Kind.PUBACK, packet_id=9, reason=Reason.NOT_AUTHORIZED)


@pytest.mark.parametrize("client_id", ["+", "#", "a/+", "x/y"])
def test_client_id_cannot_widen_a_pattern(broker: Broker, name: str, client_id: str) -> None:
    """`%c` is text: wildcards or slashes in it give no rights."""
    peer = bob(broker, client_id)
    peer.send(V5.publish(f"own/{name}/t", b"x", qos=1, packet_id=9))
    peer.expect_packet(Kind.PUBACK, packet_id=9, reason=Reason.NOT_AUTHORIZED)


def test_sys_topics_cannot_be_published(broker: Broker, name: str) -> None:
    """4.7.2: `$SYS` is the server's own; a client that may do everything cannot forge it."""
    watcher = ada(broker, f"{name}-watcher")
    watcher.subscribe((f"$SYS/broker/{name}", 1))
    peer = ada(broker, name)
    peer.send(V5.publish(f"$SYS/broker/{name}", b"forged", qos=1, packet_id=5))
    found = peer.receive()
    assert found is not None
    watcher.expect_nothing()
