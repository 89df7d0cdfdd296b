"""Rows of the log back to back, as a bulk read hands them on: one piece of memory for all of them.

An object for each key and value, kept until a page is full, costs more than reading it does.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import final


class Page:
    """Rows of one generation, one message each, as layout 1 draws them.

    Args:
        data: keys and values, in turn.
        lengths: of each of them, in bytes.
    """

    def __init__(self, data: bytes, lengths: array[int]) -> None:
        self._data = data
        self._lengths = lengths

    @property
    def data(self) -> bytes:
        """Keys and values, in turn."""
        return self._data

    @property
    def lengths(self) -> array[int]:
        """Of each of them, in bytes."""
        return self._lengths

    @classmethod
    def of(cls, keys: Sequence[bytes], values: Sequence[bytes]) -> Page:
        """The page of some rows."""
        page = PageBuilder()
        page.add([each for pair in zip(keys, values, strict=True) for each in pair])
        return page.take()

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.lengths) // 2

    def plain(self) -> Page:
        """The rows, back to back."""
        return self

    @property
    def keys(self) -> list[bytes]:
        """Of all rows, made anew."""
        return [key for key, _ in self.rows()]

    @property
    def values(self) -> list[bytes]:
        """Of all rows, made anew."""
        return [value for _, value in self.rows()]

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys with their values."""
        end = 0
        data, lengths = self.data, iter(self.lengths)
        for key_bytes, value_bytes in zip(lengths, lengths, strict=True):
            start, middle = end, end + key_bytes
            end = middle + value_bytes
            yield data[start:middle], data[middle:end]

    def behind(self, count: int) -> Page:
        """The rows after the first ``count``."""
        data, lengths = self.data, self.lengths[2 * count :]
        return Page(data[len(data) - sum(lengths) :], lengths)

    def cut(self, bytes_max: int) -> Iterator[Page]:
        """Split the rows into pages that end with the row that reaches ``bytes_max``."""
        rest = PageBuilder()
        for key, value in self.rows():
            rest.add([key, value])
            if rest.size >= bytes_max:
                yield rest.take()
        if rest.rows:
            yield rest.take()


@final
class PageBuilder:
    """Gathers the rows of a page.

    Attributes:
        size: of what it has, in bytes.
    """

    __slots__ = ("_lengths", "_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lengths: array[int] = array("i")
        self.size = 0

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self._lengths) // 2

    def add(self, rows: list[bytes]) -> None:
        """Take keys and values, in turn."""
        part = b"".join(rows)
        self._parts.append(part)
        # Half of what extend() would take, which is a third of a page's cost.
        self._lengths.frombytes(struct.pack(f"{len(rows)}i", *map(len, rows)))
        self.size += len(part)

    def join(self, page: Page) -> None:
        """Take the rows of a page."""
        part = page.data
        self._parts.append(part)
        self._lengths += page.lengths
        self.size += len(part)

    def take(self) -> Page:
        """The page, and begin the next one."""
        page = Page(b"".join(self._parts), self._lengths)
        self._parts, self._lengths, self.size = [], array("i"), 0
        return page
