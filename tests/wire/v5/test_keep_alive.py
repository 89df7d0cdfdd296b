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


@pytest.mark.virtual
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


def test_ping_between_the_bytes_of_others(broker: Broker, name: str) -> None:
    """Answers go to the connection that asked."""
    one, two = broker.connect(f"{name}1"), broker.connect(f"{name}2")
    one.send(V5.pingreq()[:1])
    two.send(V5.pingreq())
    two.expect_packet(Kind.PINGRESP)
    one.send(V5.pingreq()[1:])
    one.expect_packet(Kind.PINGRESP)
