"""Where a batch has placed what has no offset yet: how that is written, and read (``batch_codec``).

A place is an offset, or -1 - (batches back << 32 | index) of what was placed in the same batch or
in an earlier one of its submitter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, final

from perdure.storage.batch import Batch, Placed

_OFFSET: Final = struct.Struct(">q")
_BACK_BITS: Final = 32
_INDEX: Final = (1 << _BACK_BITS) - 1


@final
class Places:
    """Where what has no offset yet was placed."""

    def __init__(self, batch: Batch, earlier: Sequence[Batch]) -> None:
        self._codes: dict[int, int] = {}
        for back, each in enumerate((batch, *reversed(earlier))):
            for index, thing in enumerate(each.placed):
                self._codes[id(thing)] = -1 - (back << _BACK_BITS | index)

    def pack(self, thing: Placed) -> bytes:
        """The place of something, or its offset."""
        return _OFFSET.pack(self._codes.get(id(thing), thing.offset))


@final
class GivenOffsets:
    """The offsets of what was placed.

    Args:
        first: of the first placed thing of this batch.
        earlier: of those of earlier ones, newest first.
    """

    def __init__(self, first: int, earlier: Sequence[int]) -> None:
        self._first = first
        self._earlier = earlier

    def unpack(self, body: bytes) -> int:
        """The offset that stands at the beginning of some bytes."""
        place: int = _OFFSET.unpack_from(body)[0]
        if place >= 0:
            return place
        back, index = (-1 - place) >> _BACK_BITS, (-1 - place) & _INDEX
        return (self._earlier[back - 1] if back else self._first) + index
