"""What is no topic filter, and which fault that is."""

from __future__ import annotations

import pytest

from perdure.errors import StorageFull, StorageUnavailable
from perdure.mqtt.packets import (
    PUBREL,
    Ack,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from tests.unit.broker.harness import Client, make_sim


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
    sim = make_sim()
    client = Client(sim, "c")
    refused: list[Packet] = [
        Subscribe(1, [SubscribeFilter("good"), SubscribeFilter(topic_filter)]),
        Unsubscribe(1, ["good", topic_filter]),
    ]
    for packet in refused:
        client.connect(clean=True, expiry_s=0)
        client.send(packet)
        assert client.take(Disconnect).reason == reason
        sim.run_for(20_000)
        assert client.is_lost


def message_of(qos: int, *, retain: bool = False) -> list[Packet]:
    """A message, and its release."""
    found: list[Packet] = [Publish("t", b"x", qos, retain, False, 1 if qos else 0)]
    return [*found, Ack(PUBREL, 1)] if qos == 2 else found


@pytest.mark.parametrize("expiry_s", [0, 1000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscription_does_not_change_what_was_taken_before_it(qos: int, expiry_s: int) -> None:
    """Though all of it comes in one piece and is committed together."""
    client = Client(make_sim(), "c")
    client.connect(expiry_s=expiry_s)
    wish = [SubscribeFilter("t", 2)]
    client.send(*message_of(qos), Subscribe(1, wish))
    assert client.payloads() == []
    client.send(*message_of(qos), Unsubscribe(2, ["t"]))
    assert client.payloads() == [b"x"]
    client.send(*message_of(qos, retain=True), Subscribe(3, wish))
    assert [(m.retain, m.qos) for m in client.received if isinstance(m, Publish)] == []
    client.sim.run_for(200_000)
    assert [(m.retain, m.qos) for m in client.received if isinstance(m, Publish)] == [(True, qos)]
    client.send(*message_of(qos), Subscribe(4, [SubscribeFilter("t", 0)]))
    client.sim.run_for(200_000)
    assert (False, qos) in [(m.retain, m.qos) for m in client.received if isinstance(m, Publish)]


@pytest.mark.parametrize("how", ["write", "sync"])
def test_a_failed_store_does_not_hold_a_subscription_up(how: str) -> None:
    """What waits for a sync that does not come is passed; a session in memory needs no store."""
    sim = make_sim()
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    publisher.connect(clean=True, expiry_s=0)
    reader.connect(clean=True, expiry_s=0)
    publisher.publish("other", qos=2)
    if how == "write":
        sim.store.write_error = StorageFull("full")
    else:
        sim.store.sync_error = StorageUnavailable("broken")
    reader.send(Subscribe(1, [SubscribeFilter("t", 1)]))
    assert reader.take(Suback).reasons == [1]
