"""Integers, strings and binary data: what is read, what is refused, what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.mqtt import primitives as room
from perdure.mqtt.errors import MalformedPacket


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
@pytest.mark.spec("MQTT-1.5.5-1")
def test_varint_at_its_steps(value: int, raw: str) -> None:
    wire = bytes.fromhex(raw)
    assert room.varint(value) == wire
    assert room.varint_size(value) == len(wire)
    assert room.read_varint(b"x" + wire + b"y", 1, len(wire) + 1) == (value, len(wire) + 1)


@given(st.integers(0, 268_435_455))
def test_varint_round_trip(value: int) -> None:
    wire = room.varint(value)
    assert room.read_varint(wire, 0, len(wire)) == (value, len(wire))
    assert room.varint_size(value) == len(wire)


@pytest.mark.parametrize("raw", ["", "80", "8000", "808000", "80808000", "ffffffff", "8080808001"])
def test_bad_varints(raw: str) -> None:
    wire = bytes.fromhex(raw)
    with pytest.raises(MalformedPacket):
        room.read_varint(wire, 0, len(wire))


def test_a_reader_does_not_go_beyond_its_end() -> None:
    data = b"\x00\x01\x02\x03\x04"
    for read, end in (
        (room.read_uint16, 1),
        (room.read_uint32, 3),
        (room.read_varint, 0),
        (room.read_binary, 1),
        (room.read_binary, 2),
        (room.read_text, 2),
    ):
        with pytest.raises(MalformedPacket):
            read(data, 0, end)
    assert room.read_uint16(data, 0, 2) == (1, 2)
    assert room.read_uint32(data, 1, 5) == (0x01020304, 5)
    assert room.read_binary(data, 0, 3) == (b"\x02", 3)


@pytest.mark.spec("MQTT-1.5.4-1")
@pytest.mark.parametrize(
    "raw",
    ["80", "c0af", "c1bf", "e08080", "eda080", "edbfbf", "f08080af", "f4908080", "f5", "ff", "c3"],
)
def test_ill_formed_utf_8(raw: str) -> None:
    with pytest.raises(MalformedPacket):
        room.text_of(bytes.fromhex(raw))


@pytest.mark.spec("MQTT-1.5.4-2")
def test_u_0000() -> None:
    with pytest.raises(MalformedPacket):
        room.text_of(b"a\0b")


@pytest.mark.spec("MQTT-1.5.4-3")
def test_strings_are_kept_as_they_are() -> None:
    for text in (
        "",
        "\ufeff",
        "a\ufeffb",
        "\x01\x1f\x7f\x9f",
        "\uffff",
        "\U0010ffff",
        "A\U0002a6d4",
    ):
        wire = room.text(text)
        assert room.read_text(wire, 0, len(wire)) == (text, len(wire))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_round_trip(text: str) -> None:
    wire = room.text(text)
    assert room.read_text(wire, 0, len(wire)) == (text, len(wire))


def test_integers() -> None:
    assert room.uint16(0x0102) == b"\x01\x02"
    assert room.uint32(0x01020304) == b"\x01\x02\x03\x04"
    assert room.binary(b"") == b"\x00\x00"
    assert room.binary(b"x" * 65_535)[:2] == b"\xff\xff"


def test_what_cannot_be_written() -> None:
    for value in (-1, 65_536):
        with pytest.raises(UsageError):
            room.uint16(value)
    for value in (-1, 1 << 32):
        with pytest.raises(UsageError):
            room.uint32(value)
    for value in (-1, 268_435_456):
        with pytest.raises(UsageError):
            room.varint(value)
    for text in ("\ud800", "\0", "x" * 65_536, "ü" * 32_768):
        with pytest.raises(UsageError):
            room.text(text)
    with pytest.raises(UsageError):
        room.binary(b"x" * 65_536)
