"""MQTT 3.1.1: user names, passwords and access rules, told in this version's few codes."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import V3, Kind, Will
from tests.wire.peer import Peer
from tests.wire.users import ADA, BOB, with_users
from tests.wire.v3.codes import BAD_CREDENTIALS, NOT_AUTHORIZED

BROKER_OPTIONS = with_users(patterns="pattern read users/%u/#\n")


def ada(clients: Clients, client_id: str) -> Peer:
    """A client that may do everything."""
    return clients.join(client_id, **ADA)


def bob(clients: Clients, client_id: str, *, clean: bool = True, will: Will | None = None) -> Peer:
    """A client with few rights."""
    return clients.join(client_id, clean=clean, will=will, **BOB)


@pytest.mark.spec("MQTT-3.2.2-4@3.1.1")
@pytest.mark.spec("MQTT-3.2.2-5@3.1.1")
@pytest.mark.spec("MQTT-3.1.4-5@3.1.1")
@pytest.mark.parametrize(
    ("username", "password"),
    [
        pytest.param(None, None, id="anonymous"),
        pytest.param("ada", None, id="no-password"),
        pytest.param("ada", b"", id="empty-password"),
        pytest.param("ada", b"wrong", id="wrong-password"),
        pytest.param("ada", b"correct horse ", id="trailing-space"),
        pytest.param("ada", b"Correct Horse", id="case"),
        pytest.param("ada", b"correct\x00horse", id="nul-inside"),
        pytest.param("Ada", b"correct horse", id="user-case"),
        pytest.param("ada ", b"correct horse", id="user-space"),
        pytest.param("nobody", b"correct horse", id="unknown-user"),
        pytest.param("", b"", id="empty"),
        pytest.param("bob", b"correct horse", id="password-of-another"),
    ],
)
def test_refused(clients: Clients, name: str, username: str | None, password: bytes | None) -> None:
    """Return code 4 or 5, Session Present 0, then the close; what follows is not processed."""
    watcher = ada(clients, f"{name}-watcher")
    watcher.subscribe((name, 0))
    peer = clients.peer()
    will = Will(topic=name, payload=b"will")
    peer.send(
        V3.connect(name, clean=False, username=username, password=password, will=will),
        V3.publish(name, b"leaked"),
    )
    peer.expect_refused_connect(BAD_CREDENTIALS, NOT_AUTHORIZED)
    watcher.expect_nothing()


@pytest.mark.parametrize("clean", [True, False])
def test_refused_connect_does_not_take_over(clients: Clients, name: str, clean: bool) -> None:
    """Neither the connection nor the session of the client that it named is touched."""
    first = clients.join(name, clean=False, username="ada", password="correct horse")
    first.subscribe((name, 1))
    peer = clients.peer()
    peer.send(V3.connect(name, clean=clean, username="ada", password=b"wrong"))
    peer.expect_refused_connect(BAD_CREDENTIALS, NOT_AUTHORIZED)
    first.publish(name, b"x", qos=1)
    first.receive_publish(name, b"x", qos=1)
    first.disconnect()
    clients.join(name, clean=False, username="ada", password="correct horse", present=True)


def test_accepted(clients: Clients, name: str) -> None:
    for peer in (ada(clients, f"{name}-1"), bob(clients, f"{name}-2")):
        peer.expect_nothing()


@pytest.mark.spec("MQTT-3.3.5-2@3.1.1")
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", ["secret", "news/today", "inbox/a/b", "bobby/x", "users/bob/x"])
def test_publish_is_not_authorised(
    clients: Clients, name: str, topic: str, qos: int, retain: bool
) -> None:
    """A positive acknowledgement by the normal rules, or the close; never a delivery."""
    watcher = ada(clients, f"{name}-watcher")
    watcher.subscribe((topic, 2))
    peer = bob(clients, name)
    peer.send(
        V3.publish(topic, b"x", qos=qos, packet_id=1 if qos else None, retain=retain),
        V3.pingreq(),
    )
    answers = {}
    while len(answers) < (2 if qos else 1) and (found := peer.receive()) is not None:
        answers[found.kind] = found.packet_id
    if found is not None:
        answer = {0: {}, 1: {Kind.PUBACK: 1}, 2: {Kind.PUBREC: 1}}[qos]
        assert answers == {Kind.PINGRESP: 0, **answer}
        if qos == 2:
            peer.send(V3.pubrel(1))
            peer.take(Kind.PUBCOMP, 1)
        peer.publish("bob/fine", b"x", qos=1)
    watcher.expect_nothing()
    late = ada(clients, f"{name}-late")
    late.subscribe((topic, 2))
    late.expect_nothing()


@pytest.mark.parametrize("topic", ["bob", "bob/a", "bob/a/b", "inbox/ada", "own/{}/x"])
def test_publish_is_authorised(clients: Clients, name: str, topic: str) -> None:
    topic = topic.format(name)
    watcher = ada(clients, f"{name}-watcher")
    watcher.subscribe((topic, 1))
    bob(clients, name).publish(topic, b"x", qos=1)
    watcher.receive_publish(topic, b"x", qos=1)


@pytest.mark.spec("MQTT-3.8.4-5@3.1.1")
@pytest.mark.parametrize(
    ("topic_filter", "granted"),
    [
        ("bob/#", True),
        ("bob/+/x", True),
        ("news/#", True),
        ("news/today", True),
        ("own/{}/#", True),
        ("users/bob/#", True),
        ("secret", False),
        ("inbox/ada", False),
        ("own/other/#", False),
        ("users/ada/#", False),
    ],
)
def test_delivery_is_authorised(
    clients: Clients, name: str, topic_filter: str, granted: bool
) -> None:
    """A refused filter has 0x80 in SUBACK (Mosquitto 2.0 grants it); nothing is delivered."""
    topic_filter = topic_filter.format(name)
    peer = bob(clients, name)
    peer.send(V3.subscribe((topic_filter, 1), packet_id=5))
    found = peer.expect_packet(Kind.SUBACK, packet_id=5)
    assert found.reasons == ((1,) if granted else (0x80,))
    topic = topic_filter.replace("+", "l").replace("#", "l")
    ada(clients, f"{name}-ada").publish(topic, b"x", qos=1)
    if granted:
        peer.receive_publish(topic, b"x", qos=1)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-3.8.4-5@3.1.1")
def test_refused_filter_among_others(clients: Clients, name: str) -> None:
    """Each filter has its own code; the good ones hold. Mosquitto 2.0 grants all."""
    peer = bob(clients, name)
    peer.send(V3.subscribe(("bob/a", 1), ("secret", 2), ("news/b", 0), packet_id=6))
    peer.expect(b"\x90\x05\x00\x06\x01\x80\x00")
    publisher = ada(clients, f"{name}-ada")
    for topic in ("secret", "bob/a", "news/b"):
        publisher.publish(topic, b"x", qos=1)
    peer.receive_publish("bob/a", b"x", qos=1)
    peer.receive_publish("news/b", b"x", qos=0)
    peer.expect_nothing()


@pytest.mark.trap(54)
@pytest.mark.parametrize("topic_filter", ["#", "+/#", "secret/#", "$share/g/#"])
def test_broad_filter_delivers_what_may_be_read(
    clients: Clients, name: str, topic_filter: str
) -> None:
    """Whether or not the filter is granted: retained and live messages are checked one by one."""
    publisher = ada(clients, f"{name}-ada")
    publisher.publish(f"secret/{name}", b"kept", qos=1, retain=True)
    peer = bob(clients, name)
    peer.send(V3.subscribe((topic_filter, 1), packet_id=5))
    granted = peer.take(Kind.SUBACK, 5).reasons != (0x80,)
    publisher.publish(f"secret/{name}", b"live", qos=1)
    publisher.publish(f"bob/{name}", b"fine", qos=1)
    messages = [found.payload for found in peer.drain() if found.topic.endswith(name)]
    assert messages == ([b"fine"] if granted and topic_filter != "secret/#" else [])
    publisher.publish(f"secret/{name}", b"", qos=1, retain=True)


@pytest.mark.parametrize("ending", ["abort", "disconnect"])
def test_will_topic_is_not_authorised(clients: Clients, name: str, ending: str) -> None:
    """Refused at CONNECT with code 5, or accepted and the will never published."""
    watcher = ada(clients, f"{name}-watcher")
    watcher.subscribe(("secret", 1))
    peer = clients.peer()
    peer.send(
        V3.connect(
            name, username="bob", password="päss wörd", will=Will(topic="secret", payload=b"w")
        )
    )
    found = peer.expect_packet(Kind.CONNACK)
    assert found.reason in (0, NOT_AUTHORIZED)
    getattr(peer, ending)()
    watcher.publish("bob/end", b"")
    watcher.expect_nothing()


def test_will_topic_is_authorised(clients: Clients, name: str) -> None:
    watcher = ada(clients, f"{name}-watcher")
    watcher.subscribe((f"own/{name}/will", 1))
    bob(clients, name, will=Will(topic=f"own/{name}/will", payload=b"w", qos=1)).abort()
    watcher.receive_publish(f"own/{name}/will", b"w", qos=1)


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "../x", ""])
def test_client_id_does_not_widen_a_pattern(clients: Clients, name: str, client_id: str) -> None:
    """``%c`` stands for one level, taken literally."""
    peer = bob(clients, client_id)
    peer.send(V3.subscribe((f"own/{name}/x", 1), packet_id=1))
    assert peer.expect_packet(Kind.SUBACK).reasons in ((0x80,), (1,))
    ada(clients, f"{name}-ada").publish(f"own/{name}/x", b"x", qos=1)
    peer.expect_nothing()


def test_durable_session_of_a_user(clients: Clients, name: str) -> None:
    """Offline messages are checked when they are delivered, too."""
    peer = bob(clients, name, clean=False)
    peer.subscribe((f"news/{name}", 1))
    peer.disconnect()
    ada(clients, f"{name}-ada").publish(f"news/{name}", b"x", qos=1)
    again = bob(clients, name, clean=False)
    again.receive_publish(f"news/{name}", b"x", qos=1)
    again.disconnect()
