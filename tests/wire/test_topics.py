"""MQTT 3.1.1, section 4.7: topic names, topic filters and which matches which."""

from __future__ import annotations

import pytest

from tests.wire.clients import UNLIMITED, Clients

BROKER_OPTIONS = UNLIMITED

MATCHES = [
    # one name, no wildcard
    ("a", "a"),
    ("a/b", "a/b"),
    ("/", "/"),
    ("//", "//"),
    ("/a", "/a"),
    ("a/", "a/"),
    ("a//b", "a//b"),
    ("two words/x", "two words/x"),
    ("a.b*c?d", "a.b*c?d"),
    # multi-level [MQTT-4.7.1-2], with the parent level
    ("#", "a"),
    ("#", "a/b/c"),
    ("#", "/"),
    ("#", "/a"),
    ("a/#", "a"),
    ("a/#", "a/"),
    ("a/#", "a/b"),
    ("a/#", "a/b/c/d"),
    ("a/b/#", "a/b"),
    ("/#", "/"),
    ("/#", "/a"),
    ("/#", "//"),
    ("//#", "//"),
    ("//#", "/"),
    ("a//#", "a//b"),
    ("a//#", "a/"),
    # single-level [MQTT-4.7.1-3]
    ("+", "a"),
    ("+", "two words"),
    ("+/a", "/a"),
    ("/+", "/"),
    ("/+", "/a"),
    ("+/+", "/"),
    ("+/+", "/finance"),
    ("+/+", "a/b"),
    ("+/+/+", "//"),
    ("a/+", "a/"),
    ("a/+", "a/b"),
    ("a/+/c", "a/b/c"),
    ("a/+/c", "a//c"),
    ("+/b/+", "a/b/c"),
    ("a/+/+", "a//"),
    # both
    ("+/#", "a"),
    ("+/#", "a/b/c"),
    ("+/#", "/"),
    ("a/+/#", "a/b"),
    ("a/+/#", "a/b/c/d"),
    ("a/+/#", "a/"),
    ("+/b/#", "a/b"),
    ("+/+/#", "/a"),
    ("+/tennis/#", "sport/tennis/player1/ranking"),
    ("sport/tennis/player1/#", "sport/tennis/player1"),
    # $ at the front, named as such
    ("$x/#", "$x"),
    ("$x/#", "$x/a"),
    ("$x/+", "$x/a"),
    ("$x/a/+", "$x/a/b"),
    ("$x", "$x"),
    # $ elsewhere is a character like any other
    ("+/$x", "a/$x"),
    ("#", "a/$x"),
    ("a/+", "a/$x"),
    ("+", "x$"),
]

MISSES = [
    ("a", "b"),
    ("a", "A"),
    ("a", "a/"),
    ("a", "/a"),
    ("a/", "a"),
    ("/a", "a"),
    ("a/b", "a"),
    ("a", "a/b"),
    ("a/b", "a/b/c"),
    ("a//b", "a/b"),
    ("/", "//"),
    ("//", "/"),
    ("aa", "a"),
    ("a", "aa"),
    # multi-level
    ("a/#", "ab"),
    ("a/#", "b/a"),
    ("a/#", "/a"),
    ("/#", "a"),
    ("a/b/#", "a"),
    ("a/b/#", "a/c/b"),
    ("a//#", "a/b"),
    ("a//#", "a"),
    # single-level
    ("+", "/"),
    ("+", "/a"),
    ("+", "a/"),
    ("+", "a/b"),
    ("/+", "a"),
    ("/+", "//"),
    ("+/+", "a"),
    ("+/+", "//"),
    ("+/+", "a/b/c"),
    ("a/+", "a"),
    ("a/+", "a/b/c"),
    ("a/+", "a/b/"),
    ("a/+/c", "a/c"),
    ("a/+/c", "a/b/d"),
    ("a/+/c", "a/b/b/c"),
    ("+/b/#", "a/c"),
    ("a/+/#", "a"),
    ("+/+/#", "a"),
    ("sport/tennis/+", "sport/tennis/player1/ranking"),
    ("sport/+", "sport"),
    # [MQTT-4.7.2-1] a wildcard at the front does not match a leading $
    ("#", "$x"),
    ("#", "$x/a"),
    ("+", "$x"),
    ("+/a", "$x/a"),
    ("+/#", "$x/a"),
    ("+/+", "$x/a"),
    ("$x/#", "$xy"),
    ("$x/+", "$x"),
    ("$y/#", "$x/y"),
]


@pytest.mark.spec("MQTT-3.3.2-3@3.1.1")
@pytest.mark.spec("MQTT-4.7.1-2@3.1.1")
@pytest.mark.spec("MQTT-4.7.1-3@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-4@3.1.1")
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("topic_filter", "topic"), MATCHES)
def test_match(clients: Clients, name: str, topic_filter: str, topic: str, qos: int) -> None:
    """One delivery, under the topic's own name."""
    peer = clients.join(name)
    peer.subscribe((topic_filter, qos))
    peer.publish(topic, b"x", qos=qos)
    peer.receive_publish(topic, b"x", qos=qos, retain=False)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-4.7.2-1")
@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-4@3.1.1")
@pytest.mark.trap(28)
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(("topic_filter", "topic"), MISSES)
def test_miss(clients: Clients, name: str, topic_filter: str, topic: str, qos: int) -> None:
    peer = clients.join(name)
    peer.subscribe((topic_filter, qos))
    peer.publish(topic, b"x", qos=qos)
    peer.expect_nothing()


@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.trap(28)
def test_matching_holds_for_an_offline_session(clients: Clients, name: str) -> None:
    """What is replayed from storage is matched by the same rules as what is live."""
    filters = ["#", "+/+", f"{name}/#", f"{name}/+/c", f"$x{name}/+"]
    peer = clients.durable(name, *((topic_filter, 1) for topic_filter in filters))
    peer.disconnect()
    publisher = clients.join(f"{name}-publisher")
    topics = [
        (f"$x{name}/a", True),
        (f"$x{name}/a/b", False),
        (f"$y{name}/a", False),
        (f"$x{name}", False),
        (name, True),
        (f"{name}/b/c", True),
        (f"/{name}", True),
    ]
    for topic, _ in topics:
        publisher.publish(topic, topic.encode(), qos=1)
    again = clients.resume(name)
    for topic, matches in topics:
        if matches:
            found = again.expect_publish(topic, topic.encode(), qos=1)
            again.send(clients.build.puback(found.packet_id))
            # Overlapping subscriptions may each have brought a copy [MQTT-3.3.5-1].
    again.unsubscribe(*filters)
    again.expect_nothing()


@pytest.mark.spec("MQTT-4.7.3-3@3.1.1")
@pytest.mark.parametrize("levels", [2, 16, 100])
@pytest.mark.parametrize("token", ["", "x"])
def test_many_levels(clients: Clients, name: str, levels: int, token: str) -> None:
    topic = "/".join([name, *[token] * levels])
    peer = clients.join(name)
    peer.subscribe(topic, f"{name}/#", "/".join([name, *["+"] * levels]))
    peer.publish(topic, b"x", qos=1)
    assert peer.receive_publish(topic, b"x").qos == 1


@pytest.mark.parametrize("first", ["$", "$$", "$sys", "$a", "$share"])
def test_leading_dollar_for_applications(clients: Clients, name: str, first: str) -> None:
    """4.7.2: only what a server reserves is out of reach; these are ordinary topics."""
    peer = clients.join(name)
    topic = f"{first}/{name}" if first != "$share" else f"{name}/$share"
    peer.subscribe(topic)
    peer.publish(topic, b"x", qos=1)
    peer.receive_publish(topic, b"x", qos=1)
