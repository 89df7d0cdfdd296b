"""What filters see of a payload and of properties, and how much of it."""

from __future__ import annotations

import pytest

from perdure.content import parse_filter
from perdure.content.document import content_of, decode_json, is_too_deep
from perdure.limits import CONTENT_BYTES_MAX, CONTENT_DEPTH_MAX
from perdure.model import Message


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
    assert not is_too_deep(decode_json(wide))


def test_how_much_of_a_payload_is_read() -> None:
    exists = parse_filter('{"$payload":{"$exists":true}}')
    assert exists.holds(b"1".rjust(CONTENT_BYTES_MAX))
    assert not exists.holds(b"1".rjust(CONTENT_BYTES_MAX + 1))


def test_properties_that_do_not_decode_are_none() -> None:
    assert content_of(Message("a", b"", properties=b"\x26\x00")).pairs() == ()
