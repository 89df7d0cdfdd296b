"""MQTT 5.0: Keep Alive, PINGREQ, and connections that say nothing (3.1.2.10, 3.12, 3.1.4).

Mosquitto takes what it sends itself for a sign of life, and has no setting for the time that a
CONNECT may take.
"""

from __future__ import annotations

import pytest
from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason

BROKER_OPTIONS = Options(
    settings={"mqtt.keep_alive_max_s": "30", "mqtt.connect_timeout_ms": "1000"},
    mosquitto=("max_keepalive 30",),
)


@pytest.mark.spec("MQTT-3.12.4-1")
@pytest.mark.parametrize("count", [1, 2, 100])
def test_every_pingreq_is_answered(broker: Broker, name: str, count: int) -> None:
    peer = broker.connect(name)
    peer.send(V5.pingreq() * count)
    for _ in range(count):
        peer.expect(b"\xd0\x00")


@pytest.mark.slow
@pytest.mark.spec("MQTT-3.1.2-22")
def test_silence_beyond_the_keep_alive(broker: Broker, name: str) -> None:
    """Within one and a half times the interval nothing happens; then DISCONNECT 0x8D."""
    peer = broker.connect(name, keep_alive=2)
    started = broker.now_s()
    peer.expect_refusal(Reason.KEEP_ALIVE_TIMEOUT, timeout_s=6)
    assert 2.9 <= broker.now_s() - started < 6


@pytest.mark.slow
@pytest.mark.spec("MQTT-3.1.2-22")
@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(V5.pingreq(), id="pingreq"),
        pytest.param(V5.publish("t", b"x"), id="publish"),
        pytest.param(V5.subscribe(("t/none", 0)), id="subscribe"),
        pytest.param(V5.puback(999), id="puback"),
    ],
)
def test_any_packet_is_a_sign_of_life(broker: Broker, name: str, sign: bytes) -> None:
    peer = broker.connect(name, keep_alive=1)
    for _ in range(4):
        broker.elapse(0.7)
        peer.send(sign)
    peer.fence()


@pytest.mark.slow
@pytest.mark.spec("MQTT-3.1.2-22")
def test_what_the_broker_sends_is_no_sign_of_life(broker: Broker, name: str) -> None:
    """The interval counts packets from the client."""
    peer = broker.connect(name, keep_alive=1)
    peer.subscribe((f"{name}/t", 0))
    publisher = broker.connect(f"{name}-publisher")
    for _ in range(4):
        broker.elapse(0.6)
        publisher.publish(f"{name}/t", b"x")
    while True:
        found = peer.receive()
        assert found is not None
        if found.kind is Kind.DISCONNECT:
            break
    assert found.reason == Reason.KEEP_ALIVE_TIMEOUT


@pytest.mark.slow
def test_part_of_a_packet_is_no_packet(broker: Broker, name: str) -> None:
    """3.1.2.10 counts control packets: a byte now and then does not keep the connection."""
    peer = broker.connect(name, keep_alive=1)
    raw = V5.publish("t", b"x" * 50)
    for index in range(10):
        peer.send(raw[index : index + 1])
        broker.elapse(0.3)
    found = peer.receive()
    assert found is None or found.reason == Reason.KEEP_ALIVE_TIMEOUT


@pytest.mark.spec("MQTT-3.1.2-21")
@pytest.mark.spec("MQTT-3.2.2-21")
@pytest.mark.parametrize(
    ("asked", "stated"), [(30, None), (29, None), (1, None), (31, 30), (65_535, 30), (0, 30)]
)
def test_server_keep_alive(broker: Broker, name: str, asked: int, stated: int | None) -> None:
    """The server's value replaces the client's if it is stated."""
    connack = broker.connect(name, keep_alive=asked).connack
    assert connack.get(Prop.SERVER_KEEP_ALIVE) in (stated, None if asked <= 30 and asked else 30)


@pytest.mark.slow
def test_connection_without_connect_is_closed(broker: Broker) -> None:
    """3.1.4: no CONNECT within a reasonable time."""
    peer = broker.peer()
    assert peer.receive_raw() == b""


@pytest.mark.slow
def test_connection_with_half_a_connect_is_closed(broker: Broker, name: str) -> None:
    peer = broker.peer()
    peer.send(V5.connect(name)[:9])
    assert peer.receive_raw() == b""


def test_ping_between_the_bytes_of_others(broker: Broker, name: str) -> None:
    """Answers go to the connection that asked."""
    one, two = broker.connect(f"{name}1"), broker.connect(f"{name}2")
    one.send(V5.pingreq()[:1])
    two.send(V5.pingreq())
    two.expect_packet(Kind.PINGRESP)
    one.send(V5.pingreq()[1:])
    one.expect_packet(Kind.PINGRESP)
