"""A page whose rows still lie in the blocks of a table file: nothing was copied yet.

``decode`` takes columns from it as it is; for whoever asks for its bytes it becomes a page as any
other.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, NamedTuple, final

import numpy as np
import pyarrow.compute as pc

from perdure.pipeline.arrays import binary, pieces, slots
from perdure.storage.rocksdb.page import Page

KEY_TRAILER_BYTES: Final = 8
"""Behind each key in a file, before its value: the number of the write, and what it was."""

KEY_HEAD_BYTES: Final = 16
"""Of a data key: its stream and its offset; its tokens follow."""


class Rows(NamedTuple):
    """Rows in one piece of memory, a numpy array for each field.

    Attributes:
        streams, offsets: of the keys.
        tokens: where the rest of a key begins.
        values, ends: where a value begins and ends.
    """

    streams: Any
    offsets: Any
    tokens: Any
    values: Any
    ends: Any

    def cut(self, first: int, end: int) -> Rows:
        """Some of them."""
        return Rows(*(part[first:end] for part in self))


@final
class BlockPage(Page):
    """Rows of one stream where they lie.

    Args:
        memory: numpy bytes.
        rows: in it, in its order.

    Attributes:
        memory: the part of it that has the rows.
        at: the rows in that.
        bounds: where keys, which are not all there, and values begin in it, in turn, and the end.
    """

    def __init__(self, memory: Any, rows: Rows) -> None:
        base = max(int(rows.tokens[0]) - KEY_HEAD_BYTES, 0)
        self.memory = np.ascontiguousarray(memory[base : int(rows.ends[-1])])
        moved = (part - base for part in (rows.tokens, rows.values, rows.ends))
        numbers = (part.astype(np.int64) for part in (rows.streams, rows.offsets))
        self.at = Rows(*numbers, *moved)
        self.bounds: Any = np.empty(2 * len(self) + 1, dtype=np.int32)
        self.bounds[1::2] = self.at.values
        self.bounds[2::2] = self.at.ends
        self.bounds[0] = self.bounds[1]
        self._plain: Page | None = None

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.at.offsets)

    @property
    def data(self) -> bytes:
        """Keys and values, in turn."""
        return self.plain().data

    @property
    def lengths(self) -> array[int]:
        """Of each of them, in bytes."""
        return self.plain().lengths

    @property
    def streams(self) -> Any:
        """Of the keys, as numpy."""
        return self.at.streams

    @property
    def offsets(self) -> Any:
        """Of the keys, as numpy."""
        return self.at.offsets

    def tokens(self) -> Any:
        """The rest of each key, as an Arrow array."""
        return pieces(self.memory, self.at.tokens, self.at.values - KEY_TRAILER_BYTES)

    def key(self, row: int) -> bytes:
        """The key of a row."""
        at = self.at
        rest = self.memory[int(at.tokens[row]) : int(at.values[row]) - KEY_TRAILER_BYTES]
        return int(at.streams[row]).to_bytes(8) + int(at.offsets[row]).to_bytes(8) + bytes(rest)

    def behind(self, count: int) -> Page:
        """The rows after the first ``count``."""
        if count >= len(self):
            return Page(b"", array("i"))
        return BlockPage(self.memory, self.at.cut(count, len(self)))

    def plain(self) -> Page:
        """The rows, back to back."""
        if self._plain is None:
            self._plain = _joined(self)
        return self._plain


def _joined(page: BlockPage) -> Page:
    """The rows back to back."""
    rows, count = page.at, len(page)
    heads: Any = np.empty((count, 2), dtype=">u8")
    heads[:, 0] = rows.streams
    heads[:, 1] = rows.offsets
    bounds: Any = np.arange(0, KEY_HEAD_BYTES * count + 1, KEY_HEAD_BYTES, dtype=np.int32)
    head = slots(heads, bounds)
    values = pieces(page.memory, rows.values, rows.ends)
    joined = pc.binary_join_element_wise(head, page.tokens(), values, binary([b""])[0])
    lengths: Any = np.empty((count, 2), dtype=np.int32)
    lengths[:, 0] = rows.values - KEY_TRAILER_BYTES - rows.tokens + KEY_HEAD_BYTES
    lengths[:, 1] = rows.ends - rows.values
    packed: array[int] = array("i")
    packed.frombytes(lengths.tobytes())
    data = joined.buffers()[2]
    return Page(data.to_pybytes() if data is not None else b"", packed)
