"""MQTT 5.0, section 4.7.2: `$SYS/broker/...` under Mosquitto's names."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker, Options
from tests.wire.packets import V5

BROKER_OPTIONS = Options(settings={"sys.interval_s": "1"})


@pytest.mark.virtual
@pytest.mark.parametrize(
    "topic",
    [
        "$SYS/broker/version",
        "$SYS/broker/uptime",
        "$SYS/broker/clients/connected",
        "$SYS/broker/clients/total",
        "$SYS/broker/messages/received",
        "$SYS/broker/messages/sent",
        "$SYS/broker/bytes/received",
        "$SYS/broker/bytes/sent",
        "$SYS/broker/subscriptions/count",
        "$SYS/broker/retained messages/count",
        "$SYS/broker/load/messages/received/1min",
    ],
)
def test_value_is_retained(broker: Broker, name: str, topic: str) -> None:
    peer = broker.connect(name)
    peer.subscribe((topic, 0))
    found = peer.take_publish()
    assert found.topic == topic
    assert found.payload


@pytest.mark.virtual
def test_values_change(broker: Broker, name: str) -> None:
    """Uptime goes on; the number of clients is right."""
    peer = broker.connect(name)
    peer.subscribe(("$SYS/broker/uptime", 0))
    first, second = peer.take_publish(), peer.take_publish()
    assert first.payload != second.payload


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$SYS/broker/+", "$SYS/broker/clients/#"])
def test_wildcard_below_sys(broker: Broker, name: str, topic_filter: str) -> None:
    peer = broker.connect(name)
    peer.subscribe((topic_filter, 0))
    assert peer.take_publish().topic.startswith("$SYS/broker/")


def test_clients_cannot_forge_a_value(broker: Broker, name: str) -> None:
    """4.7.2: clients are not to use topics that begin with `$SYS`; nobody is misled."""
    peer = broker.connect(name)
    peer.subscribe(("$SYS/broker/version", 0))
    genuine = peer.take_publish().payload
    forger = broker.connect(f"{name}-forger")
    forger.send(V5.publish("$SYS/broker/version", b"forged", retain=True), V5.pingreq())
    forger.receive()
    late = broker.connect(f"{name}-late")
    late.subscribe(("$SYS/broker/version", 0))
    assert late.take_publish().payload == genuine
