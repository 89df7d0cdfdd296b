"""Entries of blocks of RocksDB's table files, with numpy, all those of an array of places at once.

An entry is what its key shares with the one before, the rest of the key, and a value; lengths are
numbers of variable length. Knows no files.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from perdure.pipeline.arrays import words

_RESTARTS_MAX: Final = 1 << 20
"""Entries of a block that have their key in full; the bits above say what is not read here."""


class NotPlain(Exception):
    """A file has something that is not read here, or is damaged, or is gone."""


KEPT: Final = np.array(
    [(_FULL := (1 << 64) - 1) ^ (_FULL >> 8 * kept) for kept in range(9)], np.uint64
)
"""Masks that keep so many of the first bytes of a word."""


def varints(data: Any, at: Any) -> tuple[Any, Any]:
    """The numbers of variable length at some places, and what follows each."""
    value = data[at].astype(np.int64)
    at = at + 1
    more = value >= 0x80
    if not more.any():
        return value, at
    value &= 0x7F
    for shift in range(7, 64, 7):
        byte = data[at].astype(np.int64)
        value |= np.where(more, (byte & 0x7F) << shift, 0)
        at += more
        more &= byte >= 0x80
        if not more.any():
            return value, at
    raise NotPlain("a number that does not end")


def restarts(data: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """The entries of blocks that have their keys in full: where they begin, and where the next of
    them does, or the entries end."""
    counts = words(data, ends - 4, "<u4").astype(np.int64)
    if counts.max(initial=0) > _RESTARTS_MAX or counts.min(initial=1) < 1:
        raise NotPlain("another kind of block")
    lists = ends - 4 - 4 * counts
    firsts = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    found = np.repeat(starts, counts) + words(data, np.repeat(lists, counts) + 4 * within, "<u4")
    until = np.empty_like(found)
    until[:-1] = found[1:]
    until[firsts + counts - 1] = lists
    return found, until


def entry(data: Any, at: Any) -> tuple[Any, Any, Any, Any]:
    """What each key shares with the one before, and has of its own; the size of the value; where
    the key goes on."""
    word = words(data, at, "<u8").astype(np.int64)
    if bool((word & 0x808080).any()):
        if bool((word & 0x80008080).any()):
            shared, at = varints(data, at)
            fresh, at = varints(data, at)
            size, at = varints(data, at)
            return shared, fresh, size, at
        long = (word >> 23) & 1
        size = ((word >> 16) & 0x7F) | ((word >> 17) & (long * 0x3F80))
        return word & 0xFF, (word >> 8) & 0xFF, size, at + 3 + long
    return word & 0xFF, (word >> 8) & 0xFF, (word >> 16) & 0xFF, at + 3
