"""Commands as bytes, and every kind of reply."""

from __future__ import annotations

import io

import pytest

from tests.support.resp import Reply, ReplyError, exchange, read_reply


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"+OK\r\n", b"OK"),
        (b":-7\r\n", -7),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"$0\r\n\r\n", b""),
        (b"$3\r\n\x00\r\n\r\n", b"\x00\r\n"),
        (b"*2\r\n:1\r\n*1\r\n+a\r\n", [1, [b"a"]]),
    ],
)
def test_every_kind_of_reply(data: bytes, reply: Reply) -> None:
    assert read_reply(io.BytesIO(data)) == reply


def test_an_error_is_raised_with_its_text() -> None:
    with pytest.raises(ReplyError, match=r"^NOAUTH say who you are$"):
        read_reply(io.BytesIO(b"-NOAUTH say who you are\r\n"))


@pytest.mark.parametrize("data", [b"", b"$5\r\nab", b"*1\r\n"])
def test_a_cut_reply_is_a_lost_connection(data: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        read_reply(io.BytesIO(data))


def test_arguments_are_counted_in_bytes() -> None:
    stream = io.BytesIO()
    # The stream is at its end after the write, as a connection that the server has closed.
    with pytest.raises(ConnectionResetError):
        exchange(stream, ("SET", "\u00e9", b"\x00", 7))
    assert stream.getvalue() == (b"*4\r\n$3\r\nSET\r\n$2\r\n\xc3\xa9\r\n$1\r\n\x00\r\n$1\r\n7\r\n")
