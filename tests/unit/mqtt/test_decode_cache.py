"""What is kept decoded: shared, bounded, and never what differs from message to message."""

from __future__ import annotations

from perdure.mqtt import decode_cache as room
from perdure.mqtt.packets import Publish
from tests.unit.mqtt.feeding import (
    decoded,
    decoder,
)


def test_topic_names_are_shared_and_the_cache_is_bounded() -> None:
    first = decoded(b"\x30\x05\x00\x03s/t", 4, from_client=True)[0]
    second = decoded(b"\x30\x05\x00\x03s/t", 4, from_client=True)[0]
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.topic is second.topic
    made = decoder(4, from_client=True)
    for number in range(room.TOPICS_CACHED_MAX + 10):
        topic = b"n/%06d" % number
        (packet,) = made.feed(bytes((0x30, 2 + len(topic), 0, len(topic))) + topic)
        assert isinstance(packet, Publish)
        assert packet.topic == topic.decode()
        assert len(room.topics) <= room.TOPICS_CACHED_MAX


def test_a_long_topic_is_not_cached() -> None:
    topic = b"t" * (room.TOPIC_CACHED_BYTES_MAX + 1)
    body = len(topic).to_bytes(2, "big") + topic
    raw = b"\x30" + bytes((len(body) & 0x7F | 0x80, len(body) >> 7)) + body
    (packet,) = decoded(raw, 4, from_client=True)
    assert isinstance(packet, Publish)
    assert packet.topic == topic.decode()
    assert topic not in room.topics


def test_properties_are_cached_but_for_what_differs_from_message_to_message() -> None:
    def publish(properties: bytes) -> Publish:
        body = b"\x00\x01a" + bytes((len(properties),)) + properties
        for _ in range(2):
            (packet,) = decoded(bytes((0x30, len(body))) + body, 5, from_client=True)
        assert isinstance(packet, Publish)
        return packet

    alias = bytes.fromhex("23 1234 03 0001 74")
    assert publish(alias) == Publish("a", b"", topic_alias=0x1234, forward=alias[3:])
    assert alias in room.message_properties
    correlated = bytes.fromhex("09 0003 313233")
    assert publish(correlated).forward == correlated
    assert correlated not in room.message_properties
    made = decoder(5, from_client=True)
    for number in range(room.PROPERTIES_CACHED_MAX + 10):
        (packet,) = made.feed(b"\x30\x09\x00\x01a\x05\x02" + number.to_bytes(4, "big"))
        assert packet == Publish("a", b"", expiry_s=number)
        assert len(room.message_properties) <= room.PROPERTIES_CACHED_MAX
