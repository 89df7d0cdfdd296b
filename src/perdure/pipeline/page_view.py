"""A page as ``decode`` reads it: one piece of memory, and where keys and values lie in it."""

from __future__ import annotations

from typing import Any, Final, Protocol, final

import numpy as np

from perdure.errors import StorageCorrupt
from perdure.pipeline.arrays import every, slots, words
from perdure.pipeline.block_page import KEY_HEAD_BYTES, BlockPage
from perdure.storage.rocksdb.page import Page

STREAM_BYTES: Final = 8
"""What a data key begins with."""


class PageView(Protocol):
    """Rows of one generation.

    Attributes:
        memory: bytes, as numpy or as they are.
        bounds: where keys and values begin in it, in turn, and the end.
    """

    memory: Any
    bounds: Any

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    @property
    def keys(self) -> list[bytes]:
        """Of all rows, made anew."""
        ...

    @property
    def streams(self) -> Any:
        """Of the keys, as numpy."""
        ...

    @property
    def offsets(self) -> Any:
        """Of the keys, as numpy."""
        ...

    def tokens(self) -> Any:
        """What keys have behind their heads, as an Arrow array."""
        ...

    def key(self, row: int) -> bytes:
        """The key of a row."""
        ...


@final
class PlainView:
    """A page whose rows are back to back."""

    def __init__(self, page: Page) -> None:
        self.memory: Any = page.data
        self.lengths: Any = np.frombuffer(page.lengths, dtype=np.int32)
        """Of keys and values, in turn."""
        bounds: Any = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(self.lengths, out=bounds[1:])
        assert int(bounds[-1]) < 2**31  # a page is far smaller
        self.bounds: Any = bounds.astype(np.int32)
        self._page = page

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._page)

    @property
    def keys(self) -> list[bytes]:
        """Of all rows, made anew."""
        return self._page.keys

    @property
    def streams(self) -> Any:
        """Of the keys, as numpy."""
        return self._words(0)

    @property
    def offsets(self) -> Any:
        """Of the keys, as numpy."""
        return self._words(STREAM_BYTES)

    def tokens(self) -> Any:
        """What keys have behind their heads, as an Arrow array."""
        count, bounds = len(self), self.bounds
        # Three elements for each row: the head of its key, its tokens, and its value.
        places: Any = np.empty(3 * count + 1, dtype=np.int32)
        places[0:-1:3] = bounds[0:-1:2]
        places[1::3] = bounds[0:-1:2] + KEY_HEAD_BYTES
        places[2::3] = bounds[1::2]
        places[-1] = bounds[-1]
        return slots(self.memory, places).take(every(1, 3 * count, 3))

    def key(self, row: int) -> bytes:
        """The key of a row."""
        start, end = self.bounds[2 * row : 2 * row + 2].tolist()
        return bytes(self.memory[start:end])

    def _words(self, at: int) -> Any:
        starts = self.bounds[0:-1:2]
        if len(self) and int((self.bounds[1::2] - starts).min()) < KEY_HEAD_BYTES:
            raise StorageCorrupt("a data key is cut short")
        return words(self.memory, starts + at, ">i8")


def view_of(page: Page) -> PageView:
    """How to read a page; nothing of it is copied."""
    return page if isinstance(page, BlockPage) else PlainView(page)
