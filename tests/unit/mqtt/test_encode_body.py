"""Packets that must shrink, and what cannot be said."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.model import Will
from perdure.mqtt import packets as p
from perdure.mqtt.encode import encode, encode_within
from perdure.mqtt.packets import Packet, Properties, Publish, SubscribeFilter

_LONG = Properties(reason_string="r" * 50, user_properties=(("k", "v" * 50),), server_reference="s")


@pytest.mark.spec("MQTT-3.1.2-24")
@pytest.mark.spec("MQTT-3.2.2-19")
@pytest.mark.spec("MQTT-3.2.2-20")
def test_encode_within_drops_user_properties_then_the_reason_string() -> None:
    packet = p.Disconnect(0x9C, _LONG)
    whole = encode(packet, 5)
    assert encode_within(packet, 5, len(whole)) == whole
    without_user = encode(
        p.Disconnect(0x9C, Properties(reason_string="r" * 50, server_reference="s")), 5
    )
    assert encode_within(packet, 5, len(whole) - 1) == without_user
    assert encode_within(packet, 5, len(without_user)) == without_user
    bare = encode(p.Disconnect(0x9C, Properties(server_reference="s")), 5)
    assert encode_within(packet, 5, len(without_user) - 1) == bare
    assert encode_within(packet, 5, len(bare) - 1) is None
    assert packet.properties.reason_string == "r" * 50  # the packet itself is not changed


_EXPLANATION = Properties(reason_string="r" * 50, user_properties=(("k", "v"),))


@pytest.mark.parametrize(
    ("packet", "bare"),
    [
        (p.Connack(False, 0x87, _EXPLANATION), p.Connack(False, 0x87)),
        (p.Ack(p.PUBACK, 1, 0x87, _EXPLANATION), p.Ack(p.PUBACK, 1, 0x87)),
        (p.Suback(1, [0x87], _EXPLANATION), p.Suback(1, [0x87])),
        (p.Unsuback(1, [0x87], _EXPLANATION), p.Unsuback(1, [0x87])),
        (p.Disconnect(0x87, _EXPLANATION), p.Disconnect(0x87)),
        (p.Auth(0x18, _EXPLANATION), p.Auth(0x18)),
    ],
)
@pytest.mark.spec("MQTT-3.4.2-2")
def test_encode_within_for_each_packet(packet: Packet, bare: Packet) -> None:
    assert encode_within(packet, 5, 12) == encode(bare, 5)


def test_encode_within_leaves_other_packets_alone() -> None:
    assert encode_within(Publish("a", b"x" * 100), 5, 50) is None
    assert encode_within(p.Suback(1, [0] * 100), 4, 50) is None
    assert encode_within(p.Ack(p.PUBACK, 1, 0x87), 5, 4) is None
    assert encode_within(p.Pingresp(), 5, 2) == b"\xd0\x00"


def test_3_1_1_leaves_out_what_it_cannot_say() -> None:
    explained = Properties(reason_string="r")
    assert encode(p.Connack(True, 0, explained), 4) == b"\x20\x02\x01\x00"
    assert encode(p.Ack(p.PUBACK, 1, 0x10, explained), 4) == b"\x40\x02\x00\x01"
    assert encode(p.Unsuback(1, [0x11], explained), 4) == b"\xb0\x02\x00\x01"
    assert encode(p.Disconnect(0x8E, explained), 4) == b"\xe0\x00"
    wanted = SubscribeFilter("a", 1, True, True, 2)
    assert encode(p.Subscribe(1, [wanted]), 4) == bytes.fromhex("8206000100016101")
    will = Will("w", b"", properties=b"\x01\x01", delay_s=5, expiry_s=6)
    assert len(encode(p.Connect(4, True, 0, "", will=will), 4)) == 19


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        (p.Auth(0x18), 4),
        (p.Ack(p.PUBACK, 0), 5),
        (p.Ack(p.PUBACK, 65536), 5),
        (Publish("a", b"", 1), 5),
        (Publish("a", b"", 0, packet_id=1), 5),
        (Publish("a", b"", 0, dup=True), 5),
        (Publish("", b""), 4),
        (Publish("a" * 65536, b""), 5),
        (Publish("\ud800", b""), 5),
        (Publish("a\0", b""), 5),
        (p.Connect(4, True, 0, "c", None, b"secret"), 4),
        (p.Connect(5, True, 65536, "c"), 5),
        (p.Connack(False, 0, Properties(topic_alias=1)), 5),
        (p.Connack(False, 0, Properties(maximum_qos=2)), 5),
        (p.Connack(False, 0, Properties(maximum_packet_size=1 << 32)), 5),
        (p.Subscribe(1, [], Properties(subscription_identifiers=(1 << 28,))), 5),
    ],
)
def test_what_cannot_be_encoded_is_our_mistake(packet: Packet, version: int) -> None:
    with pytest.raises(UsageError):
        encode(packet, version)
