"""The test peers' own codec, against bytes written out by hand from the specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.mqtt.errors import MalformedPacket
from tests.support import packets
from tests.support.packets import Packet, Publication, Splitter

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def only(data: bytes) -> Packet:
    """The one packet that these bytes are."""
    (packet,) = Splitter().feed(data)
    return packet


def test_connect() -> None:
    assert packets.connect("ab", protocol=4, keep_alive_s=10) == (
        b"\x10\x0e\x00\x04MQTT\x04\x00\x00\x0a\x00\x02ab"
    )
    assert packets.connect("ab", protocol=4, clean=True)[9] == 2
    assert packets.connect("ab", protocol=5, expiry_s=1, receive_maximum=9) == (
        b"\x10\x17\x00\x04MQTT\x05\x00\x00\x3c\x08\x11\x00\x00\x00\x01\x21\x00\x09\x00\x02ab"
    )


def test_subscribe() -> None:
    assert packets.subscribe(7, [("a/+", 1), ("#", 2)], protocol=4) == (
        b"\x82\x0c\x00\x07\x00\x03a/+\x01\x00\x01#\x02"
    )
    assert packets.subscribe(7, [("a", 1)], protocol=5) == b"\x82\x07\x00\x07\x00\x00\x01a\x01"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (packets.PUBACK, b"\x40\x02\x01\x02"),
        (packets.PUBREC, b"\x50\x02\x01\x02"),
        (packets.PUBREL, b"\x62\x02\x01\x02"),
        (packets.PUBCOMP, b"\x70\x02\x01\x02"),
    ],
)
def test_acknowledgements(kind: int, data: bytes) -> None:
    assert packets.acknowledgement(kind, 0x0102) == data
    assert packets.read_acknowledgement(only(data)) == (0x0102, 0)


def test_an_acknowledgement_of_5_0_may_carry_a_reason() -> None:
    assert packets.read_acknowledgement(only(b"\x40\x03\x01\x02\x97")) == (0x0102, 0x97)


def test_disconnect() -> None:
    assert packets.disconnect() == b"\xe0\x00"


@given(TEXTS, st.binary(max_size=300), st.integers(1, 2), st.integers(1, 65_535), st.booleans())
def test_publish_round_trip(
    topic: str, payload: bytes, qos: int, packet_id: int, dup: bool
) -> None:
    for protocol in (4, 5):
        data = packets.publish(
            topic, payload, qos=qos, packet_id=packet_id, dup=dup, protocol=protocol
        )
        expected = Publication(topic, payload, qos, dup, retain=False, packet_id=packet_id)
        assert packets.read_publish(only(data), protocol=protocol) == expected


def test_publish_at_qos_0_has_no_packet_identifier() -> None:
    read = packets.read_publish(only(b"\x31\x04\x00\x01ax"), protocol=4)
    assert read == Publication("a", b"x", 0, dup=False, retain=True, packet_id=0)


def test_publish_passes_over_properties() -> None:
    data = b"\x32\x0a\x00\x01a\x00\x05\x02\x01\x01hi"
    assert packets.read_publish(only(data), protocol=5).payload == b"hi"


def test_connack_and_suback() -> None:
    assert packets.read_connack(only(b"\x20\x02\x01\x00")) == (True, 0)
    assert packets.read_connack(only(b"\x20\x03\x00\x87\x00")) == (False, 0x87)
    assert packets.read_suback(only(b"\x90\x04\x00\x01\x01\x80"), protocol=4) == [1, 0x80]
    assert packets.read_suback(only(b"\x90\x05\x00\x01\x00\x01\x02"), protocol=5) == [1, 2]


@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(1, 9))
def test_how_a_stream_is_cut_does_not_matter(bodies: list[bytes], size: int) -> None:
    stream = b"".join(b"\x30" + packets.varint(len(body)) + body for body in bodies)
    splitter = Splitter()
    found: list[Packet] = []
    for start in range(0, len(stream), size):
        found += splitter.feed(stream[start : start + size])
    assert found == [Packet(3, 0, body) for body in bodies]


@given(st.integers(0, 268_435_455))
def test_varint_round_trip(value: int) -> None:
    data = packets.varint(value)
    assert packets.read_varint(data, 0) == (value, len(data))


def test_varint_that_is_not_all_there_or_too_long() -> None:
    assert packets.read_varint(b"\x80\x80", 0) == (0, -1)
    with pytest.raises(MalformedPacket):
        packets.read_varint(b"\x80\x80\x80\x80\x01", 0)
