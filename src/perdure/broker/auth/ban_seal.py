"""The first line of a ban file that the broker has written: what the lines below were.

A text that is cut at the end of a line is a shorter text, and a letter that flips makes another
name: neither is noticed by who reads lines. What is added below by hand stays welcome; who changes
more deletes this line. A file without one is somebody else's, and taken as it is::

    # perdure: the 152 bytes below are as written (1a2b3c4d5e6f7081); delete this line if you ...
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_BEGIN: Final = b"# perdure:"
_END: Final = b"; delete this line if you change them"
_LINE: Final = re.compile(
    rb"# perdure: the (\d{1,9}) bytes below are as written \(([0-9a-f]{16})\)" + _END
)

HINT: Final = (
    "put it back from a backup; or, if it was changed by hand and is right, delete its first line"
)


def sealed(body: bytes) -> bytes:
    """A ban file's bytes with the seal above them."""
    return (
        b"%s the %d bytes below are as written (%s)%s\n" % (_BEGIN, len(body), _digest(body), _END)
        + body
    )


def is_seal(line: bytes) -> bool:
    """Whether a line of a file is its seal."""
    return line.startswith(_BEGIN)


def damage_of(data: bytes) -> str:
    """What is wrong with a ban file's bytes; empty = nothing, or nothing seals them."""
    first, newline, body = data.partition(b"\n")
    if not is_seal(first):
        is_cut = bool(first) and not newline and _BEGIN.startswith(first)
        return "it is cut within its first line" if is_cut else ""
    found = _LINE.fullmatch(first)
    if found is None:
        return "its first line is damaged"
    size = int(found[1])
    if len(body) < size:
        return f"{size - len(body)} of its {size} bytes are missing"
    if _digest(body[:size]) != found[2]:
        return "it is not as it was written"
    return ""


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=8, person=b"perdure.bans").hexdigest().encode()
