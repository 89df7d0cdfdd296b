"""Packets to bytes: every vector, the hot path, and packets that must shrink."""

from __future__ import annotations

import pytest

from perdure.model import Message
from perdure.mqtt import packets as p
from perdure.mqtt.encode import (
    ack_bytes,
    append_publish,
    encode,
    forward_properties,
    properties_from_forward,
    publish_size,
)
from perdure.mqtt.packets import V5, Properties, Publish
from perdure.mqtt.primitives import varint
from tests.unit.mqtt.vectors import VECTORS, Vector


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


def test_many_subscription_identifiers_are_encoded_once_for_what_follows() -> None:
    identifiers = tuple(range(1, 10_001))
    message = Message("t", b"x", 1)
    wanted = b"".join(b"\x0b" + varint(each) for each in identifiers)
    for other in (identifiers, (7, 300), identifiers):
        out: list[bytes] = []
        size = append_publish(out, message, V5, 1, False, False, 5, -1, other)
        data = b"".join(out)
        assert len(data) == size
        expected = wanted if other is identifiers else b"\x0b\x07\x0b\xac\x02"
        assert expected in data
