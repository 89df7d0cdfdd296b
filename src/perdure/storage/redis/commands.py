"""Commands as values: what to send, by which key to route it, and what its error reply means.

Pure: layouts build commands and read replies here without a connection, so that their commands can
also stand in a transaction of somebody else's. Invariant: a command with a key goes to the node
that owns the key's slot; one without goes anywhere.
"""

from __future__ import annotations

import hashlib
from binascii import crc_hqx
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, cast, final

from hiredis import ReplyError, pack_command

from perdure.errors import (
    Fenced,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UsageError,
)

SLOTS: Final = 16_384
"""Hash slots of a Redis Cluster."""

Argument: TypeAlias = bytes | str | int
Reply: TypeAlias = "bytes | int | list[Reply] | ReplyError | None"

# The stub knows tuples of one argument only.
pack = cast("Callable[[tuple[Argument, ...]], bytes]", pack_command)


class Command(NamedTuple):
    """One command.

    Attributes:
        args: the command and its arguments.
        key: the key that decides on the node; empty = any node.
    """

    args: tuple[Argument, ...]
    key: bytes = b""


@final
class Library:
    """A library of functions (Redis 7), known to the server by a name that holds its hash.

    The hash keeps releases apart: each calls its own functions while both run, and a function
    that is missing is loaded without touching another's.

    Args:
        name: begins the library's name.
        body: Lua; ``{suffix}`` in it becomes the hash, for the names of functions.
    """

    __slots__ = ("code", "name", "suffix")

    def __init__(self, name: str, body: str) -> None:
        # Not a secret: it tells two texts apart.
        digest = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest()
        self.suffix = digest[:8]
        self.name = f"{name}_{self.suffix}"
        self.code = f"#!lua name={self.name}\n" + body.replace("{suffix}", self.suffix)

    def function(self, name: str) -> bytes:
        """The full name of one of its functions."""
        return f"{name}_{self.suffix}".encode()


@final
class Script:
    """A Lua script, called by its hash.

    Args:
        body: Lua, with ``KEYS`` and ``ARGV``.
    """

    __slots__ = ("body", "sha")

    def __init__(self, body: str) -> None:
        self.body = body
        # The protocol's name of a script.
        self.sha = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest().encode()


def slot_of(key: bytes) -> int:
    """The hash slot of a key: of its hash tag if it has one.

    The tag is what stands between the first ``{`` and the first ``}`` after it, unless that is
    nothing: then the whole key counts.
    """
    begin = key.find(b"{")
    if begin >= 0:
        end = key.find(b"}", begin + 1)
        if end > begin + 1:
            key = key[begin + 1 : end]
    return crc_hqx(key, 0) % SLOTS


def check(reply: Reply) -> bytes | int | list[Reply] | None:
    """A reply that is no error.

    Raises:
        StorageError, UsageError: what the error reply means to us.
    """
    if isinstance(reply, ReplyError):
        raise translate(reply)
    return reply


_UNAVAILABLE: Final = frozenset(
    (
        *("LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MISCONF", "NOREPLICAS"),
        *("READONLY", "UNBLOCKED", "MOVED", "ASK", "NOAUTH", "WRONGPASS", "IOERR"),
    )
)


def translate(error: ReplyError) -> StorageError | UsageError:
    """The error of ours that an error reply means; its first word is its kind."""
    text = str(error)
    kind, _, rest = text.partition(" ")
    if kind == "FENCED":
        return Fenced(rest)
    if kind == "SERIAL":
        return UsageError(rest)
    if kind == "FORMAT":
        return StorageCorrupt(rest)
    if kind == "OOM":
        return StorageFull(f"Redis is full: {rest}", hint="raise maxmemory, or discard queues")
    if kind == "WRONGTYPE":
        return StorageCorrupt(f"a key of ours holds another type: {text}")
    if kind in _UNAVAILABLE or "non local key" in text:
        return StorageUnavailable(f"Redis refuses for now: {text}")
    return StorageError(f"Redis: {text}")
