"""The frame reader: frames of a client as a stream of bytes, however they are cut."""

from __future__ import annotations

import random

import pytest
from websockets.frames import Frame, Opcode

from perdure.net.frames import BINARY, FrameReader, frame

BIG = 1 << 20


def _raw(opcode: Opcode, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin=fin).serialize(mask=True)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize("step", [1, 3, 1000, BIG])
def test_payloads_come_through_whatever_the_cuts(size: int, step: int) -> None:
    if size > 1000 and step == 1:
        step = 17
    payload = random.Random(size).randbytes(size)
    raw = _raw(Opcode.BINARY, payload)
    reader = FrameReader(BIG)
    got = b"".join(reader.feed(raw[at : at + step], 9) for at in range(0, len(raw), step))
    assert got == payload
    assert reader.end is None
    assert not reader.has_more


def test_a_part_of_a_frame_is_handed_on_at_once() -> None:
    reader = FrameReader(BIG)
    raw = _raw(Opcode.BINARY, b"x" * 1000)
    assert reader.feed(raw[:500], 1) == b"x" * (500 - 8)
    assert reader.feed(raw[500:], 1) == b"x" * 508


def test_so_many_frames_are_read_at_once() -> None:
    reader = FrameReader(BIG)
    raw = b"".join(_raw(Opcode.BINARY, b"%d" % digit) for digit in range(10))
    assert reader.feed(raw, 4) == b"0123"
    assert reader.has_more
    reader.keep(_raw(Opcode.BINARY, b"more"))
    assert reader.feed(b"", 4) == b"4567"
    assert reader.feed(_raw(Opcode.BINARY, b"!"), 9) == b"89more!"
    assert not reader.has_more


def test_empty_and_control_frames_count_too() -> None:
    reader = FrameReader(BIG)
    reader.feed(_raw(Opcode.BINARY, b"") * 3 + _raw(Opcode.PING, b"p") * 7, 5)
    assert reader.pongs == [b"p", b"p"]
    assert reader.has_more


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x82\x01x", 1002),  # not masked
        (b"\xc2\x81\0\0\0\0x", 1002),  # a reserved bit
        (b"\x83\x81\0\0\0\0x", 1002),  # an unknown kind
        (b"\x09\x80\0\0\0\0", 1002),  # a PING in pieces
        (b"\x89\xfe\x00\x80\0\0\0\0", 1002),  # a long PING
        (_raw(Opcode.CONT, b"x"), 1002),
        (_raw(Opcode.BINARY, b"a", fin=False) + _raw(Opcode.BINARY, b"b"), 1002),
        (_raw(Opcode.TEXT, b"text"), 1003),
        (b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0", 1009),
        (_raw(Opcode.BINARY, bytes(600_000), fin=False) + _raw(Opcode.CONT, bytes(600_000)), 1009),
        (b"\x88\x81\0\0\0\0x", 1002),  # half a code
        (_raw(Opcode.CLOSE, b"\x03\xed"), 1002),  # a code that is never sent
        (_raw(Opcode.CLOSE, b"\x03\xe8\xff"), 1007),
    ],
    ids=range(13),  # masks differ from run to run
)
def test_faults(raw: bytes, code: int) -> None:
    for step in (len(raw), 1 if len(raw) < 100 else 1000):
        reader = FrameReader(BIG)
        for at in range(0, len(raw), step):
            reader.feed(raw[at : at + step], BIG)
        assert reader.end is not None
        assert int.from_bytes(reader.end[:2], "big") == code
        assert reader.is_faulty
        assert reader.feed(_raw(Opcode.BINARY, b"x"), 1) == b""


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x0f\xa0bye"])
def test_a_close_frame_is_answered_with_its_own_code(payload: bytes) -> None:
    reader = FrameReader(BIG)
    raw = _raw(Opcode.BINARY, b"last") + _raw(Opcode.CLOSE, payload)
    assert reader.feed(raw + _raw(Opcode.BINARY, b"late"), 9) == b"last"
    assert reader.end == payload
    assert not reader.is_faulty


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_of_a_server_are_those_of_the_library(size: int) -> None:
    payload = bytes(size)
    assert frame(BINARY, payload) == Frame(Opcode.BINARY, payload).serialize(mask=False)
