"""Tells topics that come again from those that come once, without keeping any of them.

What is cached of a topic that comes once, as that of a million retained messages, is never used: it
pushes out what is, and keeps a topic alive among objects that live long. So a cache asks here
first, and takes a topic the second time.

A Bloom filter, with three bits for each topic. All are wiped when so many topics were new that one
in 200 would be taken for one that came before. One that is, is cached for nothing and lives on in
the midst of what goes: with one bit for each, a million topics left 62,000 in a cache, and few of
the pages that held them could be given back.
"""

from __future__ import annotations

from typing import Final, final

_PLACE_BITS: Final = 20
_BITS: Final = 1 << _PLACE_BITS
NEW_MAX: Final = _BITS // 16


@final
class Recurring:
    """The topics that were seen of late."""

    __slots__ = ("_bits", "_new")

    def __init__(self) -> None:
        # Made when it is needed: most generations of a log are only read.
        self._bits = bytearray()
        self._new = 0

    def is_recurring(self, topic: str) -> bool:
        """Whether a topic was seen before; from now on it was."""
        places = hash(topic)
        first = places & (_BITS - 1)
        second = places >> _PLACE_BITS & (_BITS - 1)
        third = places >> 2 * _PLACE_BITS & (_BITS - 1)
        bits = self._bits
        if (
            bits
            and bits[first >> 3] >> (first & 7) & 1
            and bits[second >> 3] >> (second & 7) & 1
            and bits[third >> 3] >> (third & 7) & 1
        ):
            return True
        if not bits or self._new >= NEW_MAX:
            bits = self._bits = bytearray(_BITS // 8)
            self._new = 0
        self._new += 1
        for place in (first, second, third):
            bits[place >> 3] |= 1 << (place & 7)
        return False
