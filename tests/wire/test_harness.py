"""The harness itself: its reader is strict, its builders say what they are told."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V3, V5, Kind, Prop, packet, varint
from tests.wire.reader import BadPacket, read


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (268_435_455, b"\xff\xff\xff\x7f"),
    ],
)
def test_varint(number: int, encoded: bytes) -> None:
    assert varint(number) == encoded


def test_varint_can_be_over_long() -> None:
    assert varint(1, width=3) == b"\x81\x80\x00"


def test_connect_of_both_versions() -> None:
    assert V3.connect("a", keep_alive=1) == b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x01\x00\x01a"
    assert V5.connect("a", keep_alive=1) == b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x01\x00\x00\x01a"


def test_publish_is_read_back() -> None:
    raw = V5.publish(
        "t", b"x", qos=1, packet_id=7, properties=[(Prop.USER, ("a", "b")), (Prop.TOPIC_ALIAS, 3)]
    )
    found = read(raw, version=5)
    assert (found.topic, found.payload, found.qos, found.packet_id) == ("t", b"x", 1, 7)
    assert found.properties == [(Prop.USER, ("a", "b")), (Prop.TOPIC_ALIAS, 3)]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x21\x03\x00\x00\x00", id="flags"),
        pytest.param(b"\x20\x04\x00\x00\x00\x00", id="rest"),
        pytest.param(packet(0x20, b"\x02\x00\x00"), id="acknowledge-flags"),
        pytest.param(packet(0x20, b"\x00\x00\x03\x23\x00\x01"), id="foreign-property"),
        pytest.param(packet(0x20, b"\x00\x00\x06\x21\x00\x01\x21\x00\x01"), id="twice"),
        pytest.param(packet(0x3A, b"\x00\x01t\x00\x00\x00"), id="packet-identifier-0"),
        pytest.param(packet(0x38, b"\x00\x01t\x00"), id="dup-of-qos-0"),
        pytest.param(packet(0x30, b"\x00\x01#\x00"), id="wildcard"),
        pytest.param(b"\x10\x00", id="connect"),
    ],
)
def test_reader_refuses(raw: bytes) -> None:
    with pytest.raises(BadPacket):
        read(raw, version=5)


@pytest.mark.parametrize("version", [4, 5])
def test_exchange_with_the_broker(broker: Broker, name: str, version: int) -> None:
    peer = broker.connect(name, version=version)
    peer.subscribe(f"{name}/+")
    for qos in (0, 1, 2):
        peer.publish(f"{name}/{qos}", b"payload", qos=qos)
        peer.receive_publish(f"{name}/{qos}", b"payload", qos=qos)
    peer.expect_nothing()
    peer.unsubscribe(f"{name}/+")
    peer.disconnect()


@pytest.mark.parametrize("version", [4, 5])
def test_chunking_does_not_matter(broker: Broker, name: str, version: int) -> None:
    peer = broker.peer(version)
    peer.send_slowly(peer.build.connect(name))
    peer.expect_connack(0)
    peer.send_slowly(peer.build.subscribe((f"{name}/a", 1), packet_id=9))
    peer.expect_packet(Kind.SUBACK, packet_id=9, reasons=(1,))
    peer.send_slowly(peer.build.publish(f"{name}/a", b"xyz", qos=1, packet_id=5))
    peer.take(Kind.PUBACK, 5)
    peer.receive_publish(f"{name}/a", b"xyz", qos=1)
