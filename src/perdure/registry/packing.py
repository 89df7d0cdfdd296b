"""Short forms of what we note beside the seed's keys, so that Redis keeps many in one piece.

Redis packs a hash or a sorted set as long as nothing in it is longer than 64 bytes. The key of a
subscription is: what is the same in all of them becomes one byte here, and ids of filters, which we
make from a hash, become that hash. Everything else stays text, so nothing is needed to read it.
"""

from __future__ import annotations

import re
from typing import Final

PIECE_BYTES: Final = 60
"""Of one value; Redis's own bound is ``hash-max-listpack-value``, 64."""

_PLAIN: Final = b"\0"
"""Begins what has a control character and stays as it is."""
_FILTER: Final = b"\x0e"
"""Begins the 8 bytes of a filter's id."""
_TOKENS: Final = (
    (b" subscription:app:", b"\x01"),
    (b":partition:", b"\x02"),
    (b":filter:", b"\x03"),
    (b":model:", b"\x04"),
    (b":user:", b"\x05"),
    (b":id:", b"\x06"),
    (b"websockets-transport", b"\x07"),
)
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_FILTER_ID: Final = re.compile(rb"\x03([0-9a-f]{16})(?=\x02|$)")


def shorten(text: bytes) -> bytes:
    """A short form; the same for the same text."""
    if _CONTROL.search(text):
        return _PLAIN + text
    for token, byte in _TOKENS:
        text = text.replace(token, byte)
    return _FILTER_ID.sub(lambda found: _FILTER + bytes.fromhex(found[1].decode()), text, count=1)


def lengthen(short: bytes) -> bytes:
    """The text of a short form."""
    if short.startswith(_PLAIN):
        return short[1:]
    before, mark, after = short.partition(_FILTER)
    filter_id = after[:8].hex().encode() if mark else b""
    texts = [before + (b"\x03" if mark else b""), after[8:] if mark else b""]
    for number, part in enumerate(texts):
        for token, byte in reversed(_TOKENS):
            part = part.replace(byte, token)
        texts[number] = part
    return texts[0] + filter_id + texts[1]
