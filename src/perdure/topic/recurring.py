"""Tells topics that come again from those that come once, without keeping any of them.

What is cached of a topic that comes once, as that of a million retained messages, is never used: it
pushes out what is, and keeps a topic alive among objects that live long. So a cache asks here
first, and takes a topic the second time.

One bit stands for each topic. All are wiped when so many topics were new that one in eight would
be taken for one that came before; one that is, is cached for nothing.
"""

from __future__ import annotations

from typing import Final, final

_BITS: Final = 1 << 19
NEW_MAX: Final = _BITS // 8


@final
class Recurring:
    """The topics that were seen of late."""

    __slots__ = ("_bits", "_new")

    def __init__(self) -> None:
        # Made when it is needed: most generations of a log are only read.
        self._bits = bytearray()
        self._new = 0

    def again(self, topic: str) -> bool:
        """Whether a topic was seen before; from now on it was."""
        place = hash(topic) & (_BITS - 1)
        at, bit = place >> 3, 1 << (place & 7)
        if self._bits and self._bits[at] & bit:
            return True
        if not self._bits or self._new >= NEW_MAX:
            self._bits = bytearray(_BITS // 8)
            self._new = 0
        self._new += 1
        self._bits[at] |= bit
        return False
