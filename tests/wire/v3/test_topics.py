"""MQTT 3.1.1, section 4.7: topics and filters that break its rules cost the connection."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients

INVALID_FILTERS = [
    "",
    "a#",
    "a/b#",
    "#/a",
    "a/#/b",
    "##",
    "a/##",
    "/#/",
    "+#",
    "#+",
    "a+",
    "+a",
    "a/+b",
    "a/b+/c",
    "++",
    "a/++/b",
    "+/+a",
    "sport+",
    "sport/tennis#",
    "sport/tennis/#/ranking",
]


@pytest.mark.spec("MQTT-4.7.1-2@3.1.1")
@pytest.mark.spec("MQTT-4.7.1-3@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-1@3.1.1")
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("topic_filter", INVALID_FILTERS)
def test_invalid_filter_in_subscribe(
    clients: Clients, name: str, topic_filter: str, alone: bool
) -> None:
    """Breaking a MUST of 4.7 closes the connection [MQTT-4.8.0-1], whatever stands before it."""
    peer = clients.join(name)
    others = [] if alone else [(f"{name}/good", 1)]
    peer.send(clients.build.subscribe(*others, (topic_filter, 1)))
    peer.expect_closed()


@pytest.mark.spec("MQTT-4.7.3-1@3.1.1")
@pytest.mark.parametrize("topic_filter", ["", "a#", "+a", "a/#/b"])
def test_invalid_filter_in_unsubscribe(clients: Clients, name: str, topic_filter: str) -> None:
    peer = clients.join(name)
    peer.send(clients.build.unsubscribe(topic_filter))
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.3.2-2@3.1.1")
@pytest.mark.spec("MQTT-4.7.1-1@3.1.1")
@pytest.mark.spec("MQTT-4.7.3-1@3.1.1")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", ["", "+", "#", "a/+", "a/#", "a+", "#a", "+/a", "a/+/b"])
def test_invalid_topic_in_publish(clients: Clients, name: str, topic: str, qos: int) -> None:
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe("#")
    peer = clients.join(name)
    peer.send(clients.build.publish(topic, b"x", qos=qos))
    peer.expect_closed()
    watcher.expect_nothing()
