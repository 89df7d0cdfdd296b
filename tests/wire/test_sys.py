"""MQTT 3.1.1, section 4.7.2: ``$SYS`` belongs to the server."""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.harness import Options
from tests.wire.packets import Kind

BROKER_OPTIONS = Options(settings={"sys.interval_s": "1"})


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$SYS/broker/version", "$SYS/+/version"])
def test_values_are_there(clients: Clients, name: str, topic_filter: str) -> None:
    """Retained, so a new subscriber has them at once."""
    peer = clients.join(name)
    peer.subscribe((topic_filter, 0))
    while (found := peer.take(Kind.PUBLISH)).topic != "$SYS/broker/version":
        assert found.topic.startswith("$SYS/")
    assert found.payload


WILDCARDS = ["#", "+/broker/version", "+/broker/uptime", "+/broker/#", "+/#", "+/+/+"]


@pytest.mark.spec("MQTT-4.7.2-1")
@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.trap(28)
@pytest.mark.parametrize("topic_filter", WILDCARDS)
def test_wildcards_do_not_reach_retained_values(
    clients: Clients, name: str, topic_filter: str
) -> None:
    peer = clients.join(name)
    peer.subscribe((topic_filter, 0))
    peer.expect_nothing()


@pytest.mark.virtual
@pytest.mark.spec("MQTT-4.7.2-1@3.1.1")
@pytest.mark.trap(28)
def test_wildcards_do_not_reach_live_values(clients: Clients, name: str) -> None:
    """Neither a connected client nor one that is offline, over more than one interval."""
    probe = clients.join(f"{name}-probe")
    probe.subscribe(("$SYS/broker/uptime", 0))
    clients.durable(f"{name}-offline", *((f, 1) for f in WILDCARDS)).disconnect()
    online = clients.join(name)
    online.subscribe(*((topic_filter, 0) for topic_filter in WILDCARDS))
    for _ in range(3):
        probe.expect_packet(Kind.PUBLISH, timeout_s=5)
    online.expect_nothing()
    again = clients.resume(f"{name}-offline")
    again.publish(name, b"x", qos=1)
    assert again.expect_packet(Kind.PUBLISH).topic == name


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_clients_do_not_write_it(clients: Clients, name: str, qos: int, retain: bool) -> None:
    """[MQTT-3.3.5-2]: acknowledged and dropped, or the connection is closed."""
    topic = f"$SYS/{name}"
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe((topic, 2))
    peer = clients.join(name)
    peer.send(
        clients.build.publish(
            topic, b"forged", qos=qos, packet_id=1 if qos else None, retain=retain
        ),
        clients.build.pingreq(),
    )
    while (found := peer.receive()) is not None and found.kind is not Kind.PINGRESP:
        assert found.kind in (Kind.PUBACK, Kind.PUBREC)
        if found.kind is Kind.PUBREC:
            peer.send(clients.build.pubrel(1))
            peer.take(Kind.PUBCOMP, 1)
    watcher.expect_nothing()
    late = clients.join(f"{name}-late")
    late.subscribe((topic, 2))
    late.expect_nothing()
