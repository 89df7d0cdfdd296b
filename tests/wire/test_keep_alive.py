"""MQTT 3.1.1, section 3.1.2.10: the keep alive, in real seconds.

Mosquitto looks for silent clients every few seconds only, so it is later than these cases allow,
and it has no bound on the time until CONNECT that a case could wait for.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.clients import Clients
from tests.wire.harness import Broker, Options
from tests.wire.packets import Kind, Packets, Reason

BROKER_OPTIONS = Options(settings={"mqtt.connect_timeout_ms": "1000"})

pytestmark = pytest.mark.virtual


@pytest.mark.spec("MQTT-3.1.2-22")
@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
@pytest.mark.parametrize("ping_first", [False, True])
@pytest.mark.parametrize("keep_alive", [1, 2])
def test_silence_ends_the_connection(
    broker: Broker, clients: Clients, name: str, keep_alive: int, ping_first: bool
) -> None:
    """Not before one and a half times the keep alive, and soon after it."""
    peer = clients.join(name, keep_alive=keep_alive)
    if ping_first:
        broker.elapse(0.8)
        peer.expect_nothing()
    started = broker.now_s()
    peer.expect_refusal(Reason.KEEP_ALIVE_TIMEOUT, timeout_s=7)
    assert 1.45 * keep_alive <= broker.now_s() - started <= 1.5 * keep_alive + 2


KEPT_ALIVE_BY: dict[str, Callable[[Packets], bytes]] = {
    "PINGREQ": lambda build: build.pingreq(),
    "PUBLISH": lambda build: build.publish("alive", b""),
    "PUBACK": lambda build: build.puback(999),
    "SUBSCRIBE": lambda build: build.subscribe(("alive", 0)),
    "UNSUBSCRIBE": lambda build: build.unsubscribe("alive"),
    "PUBREL": lambda build: build.pubrel(9),
}


@pytest.mark.spec("MQTT-3.1.2-22")
@pytest.mark.spec("MQTT-3.1.2-23@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_any_packet_keeps_the_connection(broker: Broker, clients: Clients, name: str) -> None:
    """Each of these types alone; what the broker sends does not count."""
    peers = {label: clients.join(f"{name}-{label}", keep_alive=1) for label in KEPT_ALIVE_BY}
    for _ in range(5):
        broker.elapse(0.6)
        for label, peer in peers.items():
            peer.send(KEPT_ALIVE_BY[label](clients.build))
    for peer in peers.values():
        peer.fence()


@pytest.mark.spec("MQTT-3.1.2-22")
@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_receiving_does_not_count(broker: Broker, clients: Clients, name: str) -> None:
    """A subscriber that only listens is disconnected, however much it is sent."""
    publisher = clients.join(f"{name}-publisher")
    peer = clients.join(name, keep_alive=1)
    peer.subscribe((name, 0))
    started = broker.now_s()
    while (found := peer.receive()) is not None:
        if found.kind is Kind.DISCONNECT:
            assert found.reason == Reason.KEEP_ALIVE_TIMEOUT
            peer.expect_closed()
            break
        assert found.kind is Kind.PUBLISH
        assert broker.now_s() - started < 5, "still connected"
        broker.elapse(0.1)
        publisher.publish(name, b"x")


@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
def test_zero_turns_it_off(broker: Broker, clients: Clients, name: str) -> None:
    quiet = clients.join(name, keep_alive=0)
    other = clients.join(f"{name}-other", keep_alive=1)
    other.expect_refusal(Reason.KEEP_ALIVE_TIMEOUT, timeout_s=5)
    broker.elapse(0.5)
    quiet.expect_nothing()


@pytest.mark.spec("MQTT-3.1.2-24@3.1.1")
@pytest.mark.spec("MQTT-3.1.2-4@3.1.1")
def test_session_outlives_the_timeout(clients: Clients, name: str) -> None:
    """3.1.2.10: as if the network had failed."""
    clients.durable(name, (name, 1)).disconnect()
    peer = clients.join(name, clean=False, keep_alive=1, present=True)
    peer.expect_refusal(Reason.KEEP_ALIVE_TIMEOUT, timeout_s=5)
    publisher = clients.join(f"{name}-publisher")
    publisher.publish(name, b"kept", qos=1)
    clients.resume(name).receive_publish(name, b"kept", qos=1)


def test_no_connect(clients: Clients, name: str) -> None:
    """3.1.4: a connection that says nothing in a reasonable time is closed; others go on."""
    silent = [clients.peer() for _ in range(5)]
    half = clients.peer()
    half.send(clients.build.connect(name)[:5])
    for peer in (*silent, half):
        peer.expect_closed(timeout_s=5)
    clients.join(name).expect_nothing()
