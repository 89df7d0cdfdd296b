"""What is no topic filter, and which fault that is."""

from __future__ import annotations

import pytest
from tests.unit.broker.harness import Client, make_world

from perdure.mqtt.packets import Disconnect, Packet, Subscribe, SubscribeFilter, Unsubscribe


@pytest.mark.spec("MQTT-4.7.1-1")
@pytest.mark.spec("MQTT-4.8.2-1")
@pytest.mark.spec("MQTT-4.8.2-2")
@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("a/#/b", 0x81),
        ("a+/b", 0x81),
        ("$share/g/a#", 0x81),
        ("$share/", 0x82),
        ("$share//a", 0x82),
        ("$share/g", 0x82),
        ("$share/g/", 0x82),
        ("$share/+/a", 0x82),
        ("$share/g#/a", 0x82),
    ],
)
def test_no_topic_filter(topic_filter: str, reason: int) -> None:
    world = make_world()
    client = Client(world, "c")
    refused: list[Packet] = [
        Subscribe(1, [SubscribeFilter("good"), SubscribeFilter(topic_filter)]),
        Unsubscribe(1, ["good", topic_filter]),
    ]
    for packet in refused:
        client.connect(clean=True, expiry_s=0)
        client.send(packet)
        assert client.take(Disconnect).reason == reason
        world.run_for(20_000)
        assert client.is_lost
