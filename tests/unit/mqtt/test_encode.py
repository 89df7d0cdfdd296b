"""Packets to bytes: every vector, the hot path, and packets that must shrink."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.vectors import VECTORS, Vector

from perdure.errors import UsageError
from perdure.model import Message, Will
from perdure.mqtt import packets as p
from perdure.mqtt.encode import (
    ack_bytes,
    append_publish,
    encode,
    encode_within,
    forward_properties,
    properties_from_forward,
    publish_size,
)
from perdure.mqtt.packets import Packet, Properties, Publish, SubscribeFilter


@pytest.mark.parametrize("vector", [pytest.param(v, marks=v.statement, id=v.name) for v in VECTORS])
def test_each_vector(vector: Vector) -> None:
    assert encode(vector.packet, vector.version) == vector.raw


def _message(properties: bytes = b"", payload: bytes = b"pay") -> Message:
    return Message("tö/p", payload, 1, properties=properties)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("forward", [b"", b"\x01\x01", b"\x09\x00\xc8" + b"c" * 200])
@pytest.mark.parametrize("payload", [b"", b"pay", b"p" * 200])
@pytest.mark.parametrize(
    ("expiry_s", "identifiers", "alias", "omit"),
    [
        (-1, (), 0, False),
        (0, (), 0, False),
        (60, (5, 300), 0, False),
        (-1, (), 7, False),
        (-1, (1,), 7, True),
    ],
)
def test_append_publish_agrees_with_encode_and_publish_size(
    version: int,
    qos: int,
    retain: bool,
    forward: bytes,
    payload: bytes,
    expiry_s: int,
    identifiers: tuple[int, ...],
    alias: int,
    omit: bool,
) -> None:
    message = _message(forward, payload)
    dup = qos > 0
    topic = "" if omit and version == 5 else message.topic
    packet = Publish(
        topic, payload, qos, retain, dup, 7 if qos else 0, alias, expiry_s, forward, identifiers
    )
    want = encode(packet, version)
    for _ in range(2):  # the second time with the head that was kept
        out: list[bytes] = []
        size = append_publish(
            out, message, version, qos, retain, dup, 7, expiry_s, identifiers, alias, omit
        )
        assert b"".join(out) == want
        assert size == len(want)
        assert size == publish_size(
            message, version, qos, retain, dup, 7, expiry_s, identifiers, alias, omit
        )


def test_append_publish_does_not_copy_the_payload_and_encodes_the_head_once() -> None:
    message = _message()
    out: list[bytes] = []
    append_publish(out, message, 5, 1, False, False, 1)
    append_publish(out, message, 5, 1, False, False, 2)
    heads = [piece for piece in out if piece[:1] == b"\x32"]
    assert len(heads) == 2
    assert heads[0] is heads[1]
    assert sum(piece is message.payload for piece in out) == 2


@pytest.mark.parametrize("version", [4, 5])
def test_a_stream_of_one_topic_shares_its_head(version: int) -> None:
    """Messages of the same size, whoever gets them."""
    out: list[bytes] = []
    topic = "tö/p"
    for packet_id in (1, 2):
        message = Message(topic, b"%03d" % packet_id, 1)
        append_publish(out, message, version, 1, False, False, packet_id)
    heads = [piece for piece in out if piece[:1] == b"\x32"]
    assert len(heads) == 2
    assert heads[0] is heads[1]


def test_the_kept_head_is_not_taken_for_another_topic_or_size() -> None:
    messages = [
        Message("tö/p", b"pay"),
        Message("tö/q", b"pay"),
        Message("tö/p", b"paid"),
        Message("tö/p", b"p" * 200),
        Message("tö/p", b"p" * 20_000),
        Message("tö/p", b"pay", properties=b"\x01\x01"),
    ]
    for version in (4, 5):
        for message in [each for other in messages for one in messages for each in (one, other)]:
            out: list[bytes] = []
            append_publish(out, message, version, 1, False, False, 9)
            want = Publish(message.topic, message.payload, 1, packet_id=9)
            want.forward = message.properties
            assert b"".join(out) == encode(want, version)


def test_the_kept_head_is_not_taken_for_another_version_or_other_flags() -> None:
    message = _message(b"\x01\x01")
    flags = [
        (qos, retain, dup)
        for qos in (0, 1, 2)
        for retain in (False, True)
        for dup in ((False, True) if qos else (False,))
    ]
    whole = [(version, *rest) for version in (4, 5) for rest in flags]
    for one in whole:
        for version, qos, retain, dup in [pair for other in whole for pair in (one, other)]:
            out: list[bytes] = []
            append_publish(out, message, version, qos, retain, dup, 9)
            want = Publish(message.topic, message.payload, qos, retain, dup, 9 if qos else 0)
            want.forward = message.properties
            assert b"".join(out) == encode(want, version)


@pytest.mark.parametrize("size", [0, 116, 117, 118, 16370, 16380, 2097140, 2097150])
def test_remaining_length_at_its_steps(size: int) -> None:
    message = Message("topic/a", b"x" * size)
    out: list[bytes] = []
    count = append_publish(out, message, 5, 1, False, False, 1)
    raw = b"".join(out)
    assert len(raw) == count == publish_size(message, 5, 1, False, False, 1)
    assert raw == encode(Publish("topic/a", b"x" * size, 1, packet_id=1), 5)


@pytest.mark.parametrize("kind", [p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP])
def test_ack_bytes_agrees_with_encode(kind: int) -> None:
    for packet_id in (1, 255, 256, 65535):
        assert ack_bytes(kind, packet_id) == encode(p.Ack(kind, packet_id), 4)
        assert ack_bytes(kind, packet_id, 0x92, 5) == encode(p.Ack(kind, packet_id, 0x92), 5)
        assert ack_bytes(kind, packet_id, 0x92, 4) == ack_bytes(kind, packet_id)


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


def test_forward_properties_and_back() -> None:
    kept = Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\x00\x01",
        user_properties=(("a", "1"), ("a", "2")),
    )
    assert properties_from_forward(forward_properties(kept)) == kept
    hop = Properties(message_expiry_interval=1, topic_alias=2, subscription_identifiers=(3,))
    assert forward_properties(hop) == b""
    assert properties_from_forward(b"") == Properties()


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
