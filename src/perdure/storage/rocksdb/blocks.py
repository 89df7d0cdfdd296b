"""Who reads a stream from table files as they lie, for ``bulk``; see ``pipeline/block_rows.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from perdure.storage.rocksdb.page import Page

ROWS_BEFORE_BLOCKS: Final = 2_048
"""Rows of a stream that RocksDB reads first: finding out where more of them lie costs as much."""

KEYS_FOR_BLOCKS: Final = 1_024
"""Keys of a stream below which RocksDB gets their rows, likewise."""


class LiveFile(NamedTuple):
    """A table file of a database.

    Attributes:
        name: within its directory, behind a slash.
        smallest, largest: its first and last key.
    """

    name: str
    smallest: bytes
    largest: bytes


class Stretch(NamedTuple):
    """Rows of a stream that follow each other.

    Attributes:
        page: with them.
        last: the offset of the last one.
        newest: the latest version that one of the values has, as a value begins.
    """

    page: Page
    last: int
    newest: bytes


class BlockReader(Protocol):
    """Rows in table files."""

    def pages(self, table: str, stream: int, after: int, until: int, at: int) -> Iterator[Stretch]:
        """What files have of a stream in ``(after, until]``, or the first part of it; no page
        has rows on both sides of ``at``."""
        ...

    def picked(self, table: str, stream: int, keys: Sequence[bytes]) -> Iterator[Stretch]:
        """The rows of some keys of a stream, which ascend, up to the first that files have not."""
        ...


Opener: TypeAlias = Callable[[Path, Sequence[LiveFile]], BlockReader]
"""Makes one of a directory and the files that it has."""
