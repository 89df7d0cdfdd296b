"""MQTT 3.1.1, section 4.7.2: ``$SYS`` belongs to the server."""

from __future__ import annotations

import pytest
from tests.wire.harness import Broker, Options
from tests.wire.packets import V3, Kind
from tests.wire.v3.clients import durable, join, resume

BROKER_OPTIONS = Options(settings={"sys.interval_s": "1"})


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$SYS/broker/version", "$SYS/+/version"])
def test_values_are_there(broker: Broker, name: str, topic_filter: str) -> None:
    """Retained, so a new subscriber has them at once."""
    peer = join(broker, name)
    peer.subscribe((topic_filter, 0))
    while (found := peer.take(Kind.PUBLISH)).topic != "$SYS/broker/version":
        assert found.topic.startswith("$SYS/")
    assert found.payload


WILDCARDS = ["#", "+/broker/version", "+/broker/uptime", "+/broker/#", "+/#", "+/+/+"]


@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.trap(28)
@pytest.mark.parametrize("topic_filter", WILDCARDS)
def test_wildcards_do_not_reach_retained_values(
    broker: Broker, name: str, topic_filter: str
) -> None:
    peer = join(broker, name)
    peer.subscribe((topic_filter, 0))
    peer.expect_nothing()


@pytest.mark.slow
@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.trap(28)
def test_wildcards_do_not_reach_live_values(broker: Broker, name: str) -> None:
    """Neither a connected client nor one that is offline, over more than one interval."""
    probe = join(broker, f"{name}-probe")
    probe.subscribe(("$SYS/broker/uptime", 0))
    durable(broker, f"{name}-offline", *((f, 1) for f in WILDCARDS)).disconnect()
    online = join(broker, name)
    online.subscribe(*((topic_filter, 0) for topic_filter in WILDCARDS))
    for _ in range(3):
        probe.expect_packet(Kind.PUBLISH, timeout_s=5)
    online.expect_nothing()
    again = resume(broker, f"{name}-offline")
    again.publish(name, b"x", qos=1)
    assert again.expect_packet(Kind.PUBLISH).topic == name


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_clients_do_not_write_it(broker: Broker, name: str, qos: int, retain: bool) -> None:
    """[MQTT-3.3.5-2]: acknowledged and dropped, or the connection is closed."""
    topic = f"$SYS/{name}"
    watcher = join(broker, f"{name}-watcher")
    watcher.subscribe((topic, 2))
    peer = join(broker, name)
    peer.send(
        V3.publish(topic, b"forged", qos=qos, packet_id=1 if qos else None, retain=retain),
        V3.pingreq(),
    )
    while (found := peer.receive()) is not None and found.kind is not Kind.PINGRESP:
        assert found.kind in (Kind.PUBACK, Kind.PUBREC)
        if found.kind is Kind.PUBREC:
            peer.send(V3.pubrel(1))
            peer.take(Kind.PUBCOMP, 1)
    watcher.expect_nothing()
    late = join(broker, f"{name}-late")
    late.subscribe((topic, 2))
    late.expect_nothing()
