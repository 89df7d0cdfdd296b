"""What a process writes and syncs, in order, as ``strace`` sees it.

Invariant: a call's ``begun`` and ``ended`` are positions in one order over all threads; nothing
after a call's ``ended`` can have happened before it returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

_CALL: Final = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\(\d+<(?P<path>[^>]*)>(?P<rest>.*)$")
_RESUMED: Final = re.compile(r"^(?P<thread>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)$")
_TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_RESULT: Final = re.compile(r"= (-?\d+)[^=]*$")

WRITES: Final = frozenset({"write", "writev", "pwrite64", "pwritev", "sendto", "sendmsg"})
SYNCS: Final = frozenset({"fsync", "fdatasync"})


class Call(msgspec.Struct):
    """One system call.

    Attributes:
        name: of the call.
        path: file or socket that it is about.
        data: bytes that it was given to write.
        begun, ended: its place among all calls; ``ended`` is -1 if it never returned.
        result: what it returned.
    """

    name: str
    path: str
    data: bytes
    begun: int
    ended: int = -1
    result: int = 0


def strace_command(output: Path, command: Iterable[str]) -> list[str]:
    """Run a command, itself the direct child, and write its calls to a file."""
    names = ",".join(sorted(WRITES | SYNCS))
    options = ["-D", "-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={names}"]
    return ["strace", *options, "-o", str(output), *command]


def read_calls(lines: Iterable[str]) -> list[Call]:
    """The calls in an output of ``strace``, in the order in which they began."""
    calls: list[Call] = []
    open_calls: dict[str, Call] = {}
    for position, line in enumerate(lines):
        begun = _CALL.match(line)
        if begun is not None:
            data = b"".join(_unescape(text) for text in _TEXT.findall(begun["rest"]))
            path = _unescape(begun["path"]).decode(errors="replace")
            call = Call(begun["name"], path, data, position)
            calls.append(call)
            if line.rstrip().endswith("<unfinished ...>"):
                open_calls[begun["thread"]] = call
            else:
                _end(call, begun["rest"], position)
            continue
        resumed = _RESUMED.match(line)
        if resumed is not None and resumed["thread"] in open_calls:
            _end(open_calls.pop(resumed["thread"]), resumed["rest"], position)
    return calls


def _end(call: Call, rest: str, position: int) -> None:
    result = _RESULT.search(rest)
    call.ended = position
    call.result = int(result[1]) if result is not None else -1


def _unescape(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
