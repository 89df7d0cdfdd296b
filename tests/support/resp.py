"""The least of a Redis client: one command after the other over a blocking stream.

Tests and measurements ask through it, since what they ask must not depend on the client under
test.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, final

Reply: TypeAlias = "bytes | int | list[Reply] | None"


class Stream(Protocol):
    """What ``socket.makefile("rwb")`` gives."""

    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...
    def readline(self) -> bytes: ...
    def read(self, size: int, /) -> bytes: ...


@final
class ReplyError(Exception):
    """The server answered with an error; its text is the argument."""


def exchange(stream: Stream, arguments: tuple[str | bytes | int, ...]) -> Reply:
    """Send one command and read its reply.

    Raises:
        ReplyError: the server answered with an error.
        ConnectionResetError: it closed the connection.
    """
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in arguments]
    bodies = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
    stream.write(b"*%d\r\n%b" % (len(parts), bodies))
    stream.flush()
    return read_reply(stream)


def read_reply(stream: Stream) -> Reply:
    """One reply, with all that is within it; raises as ``exchange``."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise ReplyError(rest.decode(errors="replace"))
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    length = int(rest)
    if length < 0:
        return None
    if kind == b"*":
        return [read_reply(stream) for _ in range(length)]
    body = stream.read(length + 2)
    if len(body) != length + 2:
        raise ConnectionResetError("the server closed the connection")
    return body[:-2]
