"""CBOR, by the examples of RFC 8949 (appendix A and section 3), and payloads made to hurt."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.limits import CONTENT_DEPTH_MAX, PAYLOAD_VALUES_MAX
from perdure.payloads.cbor import cbor
from perdure.payloads.schemaless import Decoder, msgpack
from perdure.payloads.sparkplug import sparkplug
from perdure.payloads.values import BIGNUM_BYTES_MAX, Undecodable
from tests.support.binary_payloads import cbor_of, field, varint


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("1bffffffffffffffff", 2**64 - 1),
        ("3bffffffffffffffff", -(2**64)),
        ("c249010000000000000000", 2**64),
        ("c349010000000000000000", -(2**64) - 1),
        ("f93c00", 1.0),
        ("fa47c35000", 100000.0),
        ("fb7e37e43c8800759c", 1e300),
        ("f97c00", math.inf),
        ("f7", None),
        ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
        ("c11a514b67b0", "2013-03-21T20:04:00+00:00"),
        ("c1fb41d452d9ec200000", "2013-03-21T20:04:00.500000+00:00"),
        ("d74401020304", "AQIDBA=="),
        ("d818456449455446", "ZElFVEY="),
        ("c48221196ab3", 273.15),
        ("c5822003", 1.5),
        ("c582190bb800", 0.0),
        ("c582390bb701", 0.0),
        ("c482390bb701", 0.0),
        # Mantissas beyond a float, and a result below the smallest of full precision.
        ("c58239045fc25891" + "01" + "00" * 144, 2.0**32),
        ("c4823901cfc258c9" + "ff" * 201, float(f"{256**201 - 1}e-464")),
        ("d9d9f783010203", [1, 2, 3]),
        ("62c3bc", "\u00fc"),
        ("a201020304", {"1": 2, "3": 4}),
        ("a3f501410002f603", {"true": 1, "AA==": 2, "null": 3}),
        ("5f42010243030405ff", "AQIDBAU="),
        ("7f657374726561646d696e67ff", "streaming"),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("a2616101616102", {"a": 2}),
    ],
)
def test_examples(item: str, value: object) -> None:
    assert cbor(bytes.fromhex(item)) == value


def test_a_number_that_is_none() -> None:
    found = cbor(bytes.fromhex("f97e00"))
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    "item",
    [
        "",
        "18",
        "1c",
        "1f",
        "df00",
        "f0",
        "f820",
        "ff",
        "62c328",
        "7f4101ff",
        "5f5f4101ffff",
        "9f01",
        "bf6161ff",
        "a18001",
        "c16161",
        "c201",
        "c48101",
        "d81d00",
        "d8190000",
        "c11bffffffffffffffff",
        "c1f97e00",
        "c58219ffff19ffff",
        "c4821901f401",
        "c582190400" + "01",
        "c58220" + "c25881" + "02" + "00" * 128,
    ],
)
def test_what_is_no_item(item: str) -> None:
    with pytest.raises(Undecodable):
        cbor(bytes.fromhex(item))


@given(
    st.sampled_from([4, 5]),
    st.integers(-(2**3000), 2**3000) | st.integers(-(2**64), 2**64),
    st.integers(-1_300, 1_100),
    st.booleans(),
)
def test_a_fraction_is_the_nearest_number(
    tag: int, mantissa: int, exponent: int, small: bool
) -> None:
    base = 10 if tag == 4 else 2
    if small:
        exponent -= mantissa.bit_length() * 10 // 33 if base == 10 else mantissa.bit_length()
    item = bytes([0xC0 | tag, 0x82]) + cbor_of(exponent) + cbor_of(mantissa)
    try:
        expected = float(Fraction(mantissa) * Fraction(base) ** exponent)
    except OverflowError:
        with pytest.raises(Undecodable):
            cbor(item)
    else:
        assert cbor(item) == expected


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=40,
)


@settings(max_examples=100)
@given(PLAIN)
def test_any_value(value: Any) -> None:
    assert repr(cbor(cbor_of(value))) == repr(value)


def nested(depth: int) -> list[tuple[Decoder, bytes]]:
    return [(cbor, b"\x81" * depth + b"\x01"), (msgpack, b"\x91" * depth + b"\x01")]


def test_how_deep() -> None:
    for decoder, payload in nested(CONTENT_DEPTH_MAX):
        assert decoder(payload)
    for depth in (CONTENT_DEPTH_MAX + 1, 100_000):
        for decoder, payload in nested(depth):
            with pytest.raises(Undecodable):
                decoder(payload)


def shared_bomb() -> bytes:
    """Forty arrays, each twice the one before by a reference to it (tags 28 and 29)."""
    made = b"\x80"
    for number in range(40):
        made = b"\xd8\x1c\x82" + made + b"\xd8\x1d" + cbor_of(number)
    return made


SIZE = 1 << 20
HURTING: list[tuple[Decoder, bytes]] = [
    *[(cbor, bytes([head]) + b"\xff" * 8 + b"\x01") for head in (0x5B, 0x7B, 0x9B, 0xBB)],
    *[(cbor, bytes([head]) + b"\x7f" + b"\xff" * 7) for head in (0x5B, 0x7B, 0x9B, 0xBB)],
    (cbor, b"\xc1" * SIZE),
    (cbor, b"\x9f" * SIZE),
    (cbor, b"\x5f" + b"\x5f" * SIZE),
    (cbor, b"\x5f" + b"\x40" * (PAYLOAD_VALUES_MAX + 1) + b"\xff"),
    (cbor, cbor_of([0] * PAYLOAD_VALUES_MAX)),
    (cbor, b"\xc2" + cbor_of(b"\x01" * (BIGNUM_BYTES_MAX + 1))),
    (cbor, shared_bomb()),
    *[(msgpack, bytes([head]) + b"\xff" * 4 + b"\x01") for head in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF)],
    (msgpack, b"\xdd\x00\x0e\x00\x00" * 60 + b"\x01" * (SIZE - 300)),
    (msgpack, msgspec.msgpack.encode([[]] * (PAYLOAD_VALUES_MAX + 1))),
    (sparkplug, varint(2 << 3 | 2) + varint(2**62) + b"\x01"),
    (sparkplug, varint(1 << 3) + b"\xff" * SIZE),
    (sparkplug, field(1, 5) * (PAYLOAD_VALUES_MAX + 1)),
    (sparkplug, field(2, field(2, 5) * PAYLOAD_VALUES_MAX)),
    (sparkplug, field(2, b"") * 10_001),
]


@pytest.mark.parametrize(("decoder", "payload"), HURTING)
def test_what_would_take_memory_is_refused_before_it_does(decoder: Decoder, payload: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable):
            decoder(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * SIZE
