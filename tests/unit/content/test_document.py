"""What filters see of a payload and of properties, and how much of it."""

from __future__ import annotations

import msgspec
import pytest

from perdure.content import parse_filter
from perdure.content.document import MISSING, content_of, decode
from perdure.limits import CONTENT_BYTES_MAX, CONTENT_DEPTH_MAX, PAYLOAD_VALUES_MAX
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties


@pytest.mark.parametrize(
    ("depth", "read"), [(CONTENT_DEPTH_MAX, True), (CONTENT_DEPTH_MAX + 1, False)]
)
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_how_deep_a_payload_is_read(depth: int, read: bool, begin: bytes, end: bytes) -> None:
    """The bound is ours and not that of whoever calls the decoder."""
    inner = b"[]" if begin == b"[" else b"{}"
    payload = begin * (depth - 1) + inner + end * (depth - 1)
    assert parse_filter('{"$payload":{"$exists":true}}').holds(payload) is read
    assert parse_filter('{"$payload":{"$exists":true}}').holds(b"[" * 100_000) is False
    wide = b"[" + b"[]," * 200 + b"1]"
    assert decode(wide) is not MISSING


def test_how_much_of_a_payload_is_read() -> None:
    exists = parse_filter('{"$payload":{"$exists":true}}')
    assert exists.holds(b"1".rjust(CONTENT_BYTES_MAX))
    assert not exists.holds(b"1".rjust(CONTENT_BYTES_MAX + 1))


@pytest.mark.parametrize("piece", [b'{"a":1}', b"[1]"])
def test_how_many_objects_and_arrays_are_read(piece: bytes) -> None:
    """Each takes as long as a hundred other bytes."""
    most = PAYLOAD_VALUES_MAX - 1
    assert decode(b"[" + b",".join([piece] * most) + b"]") is not MISSING
    assert decode(b"[" + b",".join([piece] * (most + 1)) + b"]") is MISSING


def test_properties_that_do_not_decode_are_none() -> None:
    assert content_of(Message("a", b"", properties=b"\x26\x00")).pairs() == ()


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ({"t": 31, "deep": [{"u": "C"}]}, True),
        ({"t": 5}, False),
        ({"t": b"31"}, False),
        ({1: "t"}, False),
        ([31], False),
    ],
)
@pytest.mark.parametrize("content_type", ["application/msgpack", "Application/X-MsgPack; v=1"])
def test_messagepack_by_its_content_type(value: object, holds: bool, content_type: str) -> None:
    raw = msgspec.msgpack.encode(value)
    said = forward_properties(Properties(content_type=content_type))
    hot = parse_filter('{"t": {"$gt": 30}}')
    assert hot.fulfilled_by(Message("a", raw, properties=said)) is holds
    assert not hot.fulfilled_by(Message("a", raw))


def test_messagepack_that_is_none() -> None:
    exists = parse_filter('{"$payload": {"$exists": true}}')
    said = forward_properties(Properties(content_type="application/msgpack"))
    for payload, read in (
        (b"", False),
        (b"\xc1", False),
        (b"\x91" * CONTENT_DEPTH_MAX + b"\x01", True),
        (b"\x91" * (CONTENT_DEPTH_MAX + 1) + b"\x01", False),
        (b"\x91" * 100_000, False),
        (b'{"t": 1}', False),
    ):
        assert exists.fulfilled_by(Message("a", payload, properties=said)) is read
