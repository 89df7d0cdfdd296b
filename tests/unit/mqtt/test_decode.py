"""Bytes to packets: framing, fixed headers, PUBLISH, and what a connection may send first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.mqtt import packets as p
from perdure.mqtt.decode import Decoder
from perdure.mqtt.decode_cache import TOPIC_CACHED_BYTES_MAX, message_properties
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Packet, Publish
from tests.unit.mqtt.feeding import (
    CONNECT_BYTES,
    decoded,
    decoder,
    feed_both,
    fresh,
    refused,
    refused_connect,
)
from tests.unit.mqtt.vectors import VECTORS, Vector


@pytest.mark.parametrize("vector", [pytest.param(v, marks=v.statement, id=v.name) for v in VECTORS])
def test_each_vector(vector: Vector) -> None:
    assert decoded(vector.raw, vector.version, from_client=vector.from_client) == [vector.packet]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("from_client", [True, False])
def test_many_packets_in_one_feed(version: int, from_client: bool) -> None:
    rows = [
        v
        for v in VECTORS
        if v.version == version and v.from_client == from_client and v.packet.kind != p.CONNECT
    ]
    raw = b"".join(v.raw for v in rows)
    assert decoded(raw, version, from_client=from_client) == [v.packet for v in rows]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    rows = [v for v in VECTORS if v.version == 5 and v.from_client and v.packet.kind != p.CONNECT]
    raw = b"".join(v.raw for v in rows)
    made = decoder(5, from_client=True)
    packets: list[Packet] = []
    at = 0
    for cut in cuts:
        packets += made.feed(raw[at : at + cut])
        at += cut
    packets += made.feed(raw[at:])
    assert packets == [v.packet for v in rows]


def test_good_packets_before_a_bad_one_are_returned() -> None:
    made = decoder(5, from_client=True)
    assert made.feed(b"\xc0\x00\x40\x02\x00\x01\xc1\x00\xc0\x00") == [
        p.Pingreq(),
        p.Ack(p.PUBACK, 1),
    ]
    assert made.failure is not None
    assert made.failure.reason_code == 0x81
    assert made.feed(b"\xc0\x00") == []
    assert not made._tail  # what is discarded is not kept either


@pytest.mark.parametrize("version", [4, 5])
def test_remaining_length_of_five_bytes(version: int) -> None:
    assert refused(b"\x30\xff\xff\xff\xff", version) == 0x81
    assert refused(b"\x30\x80\x80\x80\x80\x01", version) == 0x81


@pytest.mark.spec("MQTT-1.5.5-1")
def test_remaining_length_longer_than_it_must_be() -> None:
    assert refused(b"\xc0\x80\x00") == 0x81
    # 3.1.1 does not ask for the shortest form.
    assert decoded(b"\xc0\x80\x80\x00", 4, from_client=True) == [p.Pingreq()]
    padded_connect = b"\x10\x8e\x00" + CONNECT_BYTES[5][2:]
    assert refused_connect(padded_connect) == 0x81
    padded_connect = b"\x10\x8d\x00" + CONNECT_BYTES[4][2:]
    assert len(decoded(padded_connect, 4, from_client=True)) == 1


@pytest.mark.spec("MQTT-3.2.2-15")
@pytest.mark.parametrize("version", [4, 5])
def test_a_packet_too_large_is_refused_before_its_body(version: int) -> None:
    for raw, want in (
        (b"\x32\x62", None),  # 100 bytes
        (b"\x32\x63", 0x95),
        (b"\x32\xff\xff\xff\x7f", 0x95),
        (b"\x32\x63" + b"x" * 99, 0x95),
        (b"\x36\x63", 0x81),  # what the header shows besides comes first
    ):
        one = decoder(version, from_client=True, size_max=100)
        other = decoder(version, from_client=True, size_max=100)
        feed_both(one, other, raw)
        assert (one.failure and one.failure.reason_code) == want


@pytest.mark.parametrize("version", [4, 5])
def test_a_packet_of_just_the_largest_size(version: int) -> None:
    for payload in (b"x" * 10, b"x" * 200):
        raw = encode(Publish("a", payload), version)
        one = decoder(version, from_client=True, size_max=len(raw))
        other = decoder(version, from_client=True, size_max=len(raw))
        assert feed_both(one, other, raw) == [Publish("a", payload)]
        small = decoder(version, from_client=True, size_max=len(raw) - 1)
        assert small.feed(raw) == []
        assert small.failure is not None
        assert small.failure.reason_code == 0x95


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param("36 06 0001 61 0001 00", 0x81, marks=pytest.mark.spec("MQTT-3.3.1-4")),
        pytest.param("38 04 0001 61 00", 0x81, marks=pytest.mark.spec("MQTT-3.3.1-2")),
        pytest.param("39 04 0001 61 00", 0x81, marks=pytest.mark.spec("MQTT-3.3.1-2")),
        pytest.param("32 06 0001 61 0000 00", 0x82, marks=pytest.mark.spec("MQTT-2.2.1-3")),
        pytest.param("34 06 0001 61 0000 00", 0x82, marks=pytest.mark.spec("MQTT-2.2.1-3")),
        pytest.param("30 04 0001 2b 00", 0x81, marks=pytest.mark.spec("MQTT-3.3.2-2")),
        pytest.param("30 06 0003 612f23 00", 0x81, marks=pytest.mark.spec("MQTT-3.3.2-2")),
        pytest.param("30 04 0001 00 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.4-2")),
        pytest.param("30 06 0003 eda080 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.4-1")),
        pytest.param("30 05 0002 c080 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.4-1")),
        pytest.param("30 04 0001 ff 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.4-1")),
        ("30 00", 0x81),
        ("30 01 00", 0x81),
        ("30 03 0002 61", 0x81),
        ("32 04 0001 61 00", 0x81),
    ],
)
def test_bad_publish_in_both_versions(raw: str, reason: int) -> None:
    for version in (4, 5):
        for from_client in (True, False):
            assert refused(bytes.fromhex(raw), version, from_client=from_client) == reason


@pytest.mark.spec("MQTT-4.7.3-1")
def test_an_empty_topic() -> None:
    assert refused(bytes.fromhex("30 02 0000"), 4) == 0x81
    assert refused(bytes.fromhex("30 03 0000 00"), 5) == 0x82
    assert refused(bytes.fromhex("30 08 0000 05 02 00000001"), 5) == 0x82


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        pytest.param("03 23 0000", 0x94, marks=pytest.mark.spec("MQTT-3.3.2-8")),
        pytest.param("06 23 0001 23 0001", 0x82, id="two aliases"),
        pytest.param("02 0b 01", 0x82, marks=pytest.mark.spec("MQTT-3.3.4-6")),
        pytest.param("02 0b 00", 0x82, id="identifier 0"),
        pytest.param("02 01 02", 0x82, id="payload format 2"),
        pytest.param("04 01 00 01 00", 0x82, id="two payload formats"),
        pytest.param("0a 02 00000001 02 00000001", 0x82, id="two expiries"),
        pytest.param("04 08 0001 2b", 0x82, marks=pytest.mark.spec("MQTT-3.3.2-14")),
        pytest.param("03 08 0000", 0x82, marks=pytest.mark.spec("MQTT-4.7.3-1")),
        pytest.param("04 03 0001 ff", 0x81, marks=pytest.mark.spec("MQTT-3.3.2-19")),
        pytest.param("08 08 0001 61 08 0001 61", 0x82, id="two response topics"),
        pytest.param("07 26 0001 61 0001 00", 0x81, id="user property with U+0000"),
        pytest.param("05 11 00000001", 0x81, id="a property of CONNECT"),
        pytest.param("05 18 00000001", 0x81, id="a property of the will"),
        pytest.param("02 7f 00", 0x81, id="no such property"),
        pytest.param("03 80 01 00", 0x81, id="no such property, two bytes"),
        pytest.param("01 02", 0x81, id="property cut off"),
        pytest.param("01 01", 0x81, id="byte cut off"),
        pytest.param("04 26 0001 61", 0x81, id="user property cut off"),
        pytest.param("7f", 0x81, id="length beyond the packet"),
        pytest.param("80 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.5-1")),
        pytest.param("80 80 80 80 01", 0x81, id="length of five bytes"),
        pytest.param("", 0x81, id="no length"),
    ],
)
def test_bad_publish_properties(properties: str, reason: int) -> None:
    raw = bytes.fromhex(properties)
    assert refused(bytes((0x30, 3 + len(raw))) + b"\x00\x01a" + raw) == reason
    assert refused(bytes((0x32, 5 + len(raw))) + b"\x00\x01a\x00\x01" + raw) == reason


@pytest.mark.parametrize(
    "character", ["\x01", "\x1f", "\x7f", "\x9f", "\uffff", "\ufdd0", "\U0010fffe"]
)
def test_control_characters_and_non_characters_name_nothing(character: str) -> None:
    """Section 1.5.4: a receiver MAY treat them as malformed."""
    raw = f"a{character}".encode()
    body = len(raw).to_bytes(2, "big") + raw
    assert refused(bytes((0x30, len(body))) + body, 4) == 0x81


@pytest.mark.spec("MQTT-1.5.4-3")
def test_unusual_but_good_topics() -> None:
    for topic in ("\ufeffa", "\u200b", "\U0002a6d4", "/", "//", " ", "$SYS/x"):
        raw = topic.encode()
        body = len(raw).to_bytes(2, "big") + raw
        (packet,) = decoded(bytes((0x30, len(body))) + body, 4, from_client=True)
        assert isinstance(packet, Publish)
        assert packet.topic == topic


@pytest.mark.spec("MQTT-3.3.2-18")
def test_forwarded_properties_keep_their_order_around_those_of_the_hop() -> None:
    kept = [bytes.fromhex(h) for h in ("260001610001 62", "0101", "260001610001 63", "03000174")]
    hop = [bytes.fromhex(h) for h in ("0200000001", "230005")]
    for order in (
        [hop[0], *kept, hop[1]],
        [kept[0], hop[0], kept[1], hop[1], *kept[2:]],
        [*kept, *hop],
    ):
        properties = b"".join(order)
        body = b"\x00\x01a" + bytes((len(properties),)) + properties + b"pay"
        (packet,) = decoded(bytes((0x30, len(body))) + body, 5, from_client=True)
        assert packet == Publish("a", b"pay", topic_alias=5, expiry_s=1, forward=b"".join(kept))


@pytest.mark.parametrize("version", [4, 5])
def test_the_topic_of_one_publish_is_not_taken_for_that_of_the_next(version: int) -> None:
    long = "l" * (TOPIC_CACHED_BYTES_MAX + 1)
    topics = ["t/a", "t/b", "t/b", "t/a", "t", "t/a/b", long, long, "t/a", "ö"]
    sent = [Publish(topic, b"pay") for topic in topics]
    raw = b"".join([encode(packet, version) for packet in sent])
    assert decoded(raw, version, from_client=True) == sent


@pytest.mark.parametrize("version", [4, 5])
def test_an_empty_topic_is_not_the_one_before(version: int) -> None:
    """3.1.1 has no empty topic, 5.0 none without an alias."""
    made = decoder(version, from_client=True)
    assert made.feed(encode(Publish("t", b""), version)) == [Publish("t", b"")]
    assert made.feed(b"\x30\x03\x00\x00\x00") == []
    assert made.failure is not None


def test_properties_of_more_than_127_bytes() -> None:
    properties = b"\x26\x00\x01k\x00\xc8" + b"v" * 200
    body = b"\x00\x01a" + b"\xce\x01" + properties + b"pay"
    raw = b"\x30" + bytes((len(body) & 0x7F | 0x80, len(body) >> 7)) + body
    assert decoded(raw, 5, from_client=True) == [Publish("a", b"pay", forward=properties)]
    assert properties not in message_properties


def test_a_large_packet_in_many_pieces_is_joined_once() -> None:
    payload = bytes(range(256)) * 2000
    body = b"\x00\x01a" + payload
    size = len(body)
    raw = b"\x30" + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + body
    made = decoder(4, from_client=True)
    packets: list[Packet] = []
    for at in range(0, len(raw), 1000):
        packets += made.feed(raw[at : at + 1000])
    assert packets == [Publish("a", payload)]


def test_a_client_hears_that_the_server_does_not_speak_5_0() -> None:
    assert refused(b"\x20\x02\x00\x01", from_client=False) == 0x84


@settings(max_examples=300)
@given(data=st.binary(max_size=200), version=st.sampled_from([0, 4, 5]), client=st.booleans())
def test_any_bytes_parse_or_set_failure(data: bytes, version: int, client: bool) -> None:
    if version == 0:
        one, other = fresh(500), fresh(500)
    else:
        one = decoder(version, from_client=client, size_max=500)
        other = decoder(version, from_client=client, size_max=500)
    feed_both(one, other, data)


@settings(max_examples=300)
@given(
    vector=st.sampled_from(VECTORS),
    changes=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 5),
)
def test_damaged_packets_parse_or_set_failure(
    vector: Vector, changes: list[tuple[int, int]], cut: int
) -> None:
    raw = bytearray(vector.raw)
    for at, value in changes:
        raw[at % len(raw)] = value
    damaged = bytes(raw[: len(raw) - cut])
    if vector.packet.kind == p.CONNECT:
        one, other = fresh(500), fresh(500)
    else:
        one = decoder(vector.version, from_client=vector.from_client, size_max=500)
        other = decoder(vector.version, from_client=vector.from_client, size_max=500)
    feed_both(one, other, damaged)
    if one.failure is not None:
        assert one.failure.reason_code >= 0x80


def test_an_empty_feed_changes_nothing() -> None:
    made = Decoder(server_side=True, packet_size_max=10)
    assert made.feed(b"") == []
    assert made.failure is None


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "repeated"])
def test_long_topic_names_are_work_by_their_length(version: int, is_new: bool) -> None:
    """Each byte of them is looked at several times; short ones are remembered."""
    size = 60_000 if is_new else 200
    data = b"".join(
        encode(Publish(f"{number if is_new else 0}".rjust(size, "t"), b"", 0), version)
        for number in range(100)
    )
    reading = decoder(version, from_client=True)
    assert len(reading.feed(data, 512)) == (3 if is_new else 100)
    assert reading.has_more is is_new
