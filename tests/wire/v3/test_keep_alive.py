"""MQTT 3.1.1, section 3.1.2.10: the keep alive, in real seconds.

Mosquitto looks for silent clients every few seconds only, so it is later than these cases allow,
and it has no bound on the time until CONNECT that a case could wait for.
"""

from __future__ import annotations


import pytest
from tests.wire.harness import Broker, Options
from tests.wire.packets import V3, Kind
from tests.wire.v3.clients import durable, join, resume

BROKER_OPTIONS = Options(settings={"mqtt.connect_timeout_ms": "1000"})

pytestmark = pytest.mark.slow


@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
@pytest.mark.parametrize("ping_first", [False, True])
def test_silence_ends_the_connection(broker: Broker, name: str, ping_first: bool) -> None:
    """Not before one and a half times the keep alive, and soon after it."""
    peer = join(broker, name, keep_alive=1)
    if ping_first:
        broker.elapse(0.8)
        peer.expect_nothing()
    started = broker.now_s()
    peer.expect_closed(timeout_s=5)
    assert 1.4 <= broker.now_s() - started <= 3.5


KEPT_ALIVE_BY = {
    "PINGREQ": V3.pingreq(),
    "PUBLISH": V3.publish("alive", b""),
    "PUBACK": V3.puback(999),
    "SUBSCRIBE": V3.subscribe(("alive", 0)),
    "UNSUBSCRIBE": V3.unsubscribe("alive"),
    "PUBREL": V3.pubrel(9),
}


@pytest.mark.spec("MQTT-3.1.2-23@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_any_packet_keeps_the_connection(broker: Broker, name: str) -> None:
    """Each of these types alone; what the broker sends does not count."""
    peers = {label: join(broker, f"{name}-{label}", keep_alive=1) for label in KEPT_ALIVE_BY}
    for _ in range(5):
        broker.elapse(0.6)
        for label, peer in peers.items():
            peer.send(KEPT_ALIVE_BY[label])
    for peer in peers.values():
        peer.fence()


@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_receiving_does_not_count(broker: Broker, name: str) -> None:
    """A subscriber that only listens is disconnected, however much it is sent."""
    publisher = join(broker, f"{name}-publisher")
    peer = join(broker, name, keep_alive=1)
    peer.subscribe((name, 0))
    started = broker.now_s()
    while (found := peer.receive()) is not None:
        assert found.kind is Kind.PUBLISH
        assert broker.now_s() - started < 5, "still connected"
        broker.elapse(0.1)
        publisher.publish(name, b"x")


@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_zero_turns_it_off(broker: Broker, name: str) -> None:
    quiet = join(broker, name, keep_alive=0)
    other = join(broker, f"{name}-other", keep_alive=1)
    other.expect_closed(timeout_s=5)
    broker.elapse(0.5)
    quiet.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-4@3.1.1")
def test_session_outlives_the_timeout(broker: Broker, name: str) -> None:
    """3.1.2.10: as if the network had failed."""
    durable(broker, name, (name, 1)).disconnect()
    peer = join(broker, name, clean=False, keep_alive=1, present=True)
    peer.expect_closed(timeout_s=5)
    publisher = join(broker, f"{name}-publisher")
    publisher.publish(name, b"kept", qos=1)
    resume(broker, name).receive_publish(name, b"kept", qos=1)


def test_no_connect(broker: Broker, name: str) -> None:
    """3.1.4: a connection that says nothing in a reasonable time is closed; others go on."""
    silent = [broker.peer(4) for _ in range(5)]
    half = broker.peer(4)
    half.send(V3.connect(name)[:5])
    for peer in (*silent, half):
        peer.expect_closed(timeout_s=5)
    join(broker, name).expect_nothing()
