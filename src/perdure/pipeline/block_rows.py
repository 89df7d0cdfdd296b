"""Rows of a stream from the blocks of table files, thousands at a time.

A block has entries one behind the other, each with what its key shares with the one before; every
sixteenth begins anew. So all the stretches between are taken apart at once: the first entry of
each, then the second of each, with numpy, for a tenth of what RocksDB's iterator and an object for
each key and value cost.

It reads what a stream has in files, in order, and leaves to RocksDB what it cannot read and
what is in memory still: that is behind all that is in files, because offsets only ascend and memory
is written to a file as a whole. Where rows were deleted in memory it reads nothing.

Invariant: what is given is what RocksDB would give, from the first row on, without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from perdure.limits import OFFSET_MAX
from perdure.pipeline.arrays import words
from perdure.pipeline.block_entries import KEPT, NotPlain, entry, restarts
from perdure.pipeline.block_page import KEY_HEAD_BYTES, KEY_TRAILER_BYTES, BlockPage, Rows
from perdure.pipeline.block_picks import VALUE, Keys, Picker, Range
from perdure.pipeline.table_files import Handles, TableFile
from perdure.storage.rocksdb.blocks import LiveFile, Stretch

_GROUP_BYTES: Final = 8 * 1024 * 1024
"""Bytes of blocks that are taken apart at once; a group of one block may have more."""

_PAGE_ROWS: Final = 16_384
"""Rows of a page; smaller and larger ones were slower."""

_PART_ROWS: Final = 2
"""Rows to be picked for each part of an index, which has some 35 blocks, below which RocksDB is
as fast."""

_FILE_ROWS: Final = 128
"""Rows to be picked for each file, likewise: numpy's calls cost as much for few as for many."""

_KEPT_MAX: Final = 524_288
"""Blocks whose places are kept, 24 bytes each."""

_BLOCKS_MIN: Final = 32
"""Blocks of a range below which RocksDB is as fast."""


@final
class BlockRows:
    """Reads the table files of a directory.

    Args:
        path: of the database.
        files: that it has.
    """

    def __init__(self, path: Path, files: Sequence[LiveFile]) -> None:
        self._path = path
        self._live = files
        self._opened: dict[str, TableFile | None] = {}
        self._pickers: dict[tuple[str, int], Picker] = {}
        self._kept = 0

    def pages(self, table: str, stream: int, after: int, until: int, at: int) -> Iterator[Stretch]:
        """What files have of a stream in ``(after, until]``, or the first part of it.

        Args:
            table: of the log.
            stream: in it.
            after, until: offsets of rows.
            at: no page has rows on both sides of this one.
        """
        try:
            files = self._holding(table, stream, after, until)
            ranges = self._ranges(files, stream, after, until)
            last = after
            for number, each in enumerate(ranges):
                behind = ranges[number + 1].first if number + 1 < len(ranges) else until + 1
                for start, end in _groups(each.blocks):
                    some = each.blocks.cut(start, end)
                    blocks = each.file.read(some.starts, some.sizes)
                    rows = _within(_taken_apart(*blocks), stream, after, until)
                    count = len(rows.offsets)
                    if not count:
                        continue
                    if int(rows.offsets[0]) <= last or int(rows.offsets[-1]) >= behind:
                        raise NotPlain("files that hold the same range")
                    if not bool((rows.offsets[1:] > rows.offsets[:-1]).all()):
                        raise NotPlain("rows out of order")
                    middle = int(rows.offsets.searchsorted(np.uint64(at), side="right"))
                    for low, high in pairwise(
                        sorted({*range(0, count, _PAGE_ROWS), middle, count})
                    ):
                        stretch = _stretch(blocks.data, rows.cut(low, high))
                        last = stretch.last
                        yield stretch
        except NotPlain:
            return

    def picked(self, table: str, stream: int, keys: Sequence[bytes]) -> Iterator[Stretch]:
        """The rows of some keys of a stream, which ascend, up to the first that files have not.

        Args:
            table: of the log.
            stream: in it.
            keys: of rows.
        """
        try:
            picker = self._picker(table, stream, len(keys))
            if picker is None:
                return
            wanted, at = Keys.of(keys), 0
            while at < len(keys):
                asked, memory, rows = picker.pick(wanted, at)
                if len(rows.offsets):
                    yield _stretch(memory, rows)
                if len(rows.offsets) < asked:
                    return
                at += asked
        except NotPlain:
            return

    def _picker(self, table: str, stream: int, keys: int) -> Picker | None:
        """Who finds rows of a stream; None = it is too large for so few."""
        found = self._pickers.get((table, stream))
        if found is None:
            everything = (stream, 0, OFFSET_MAX)
            files = self._holding(table, *everything)
            parts = sum(file.parts_of(*everything) for file in files)
            if max(parts * _PART_ROWS, len(files) * _FILE_ROWS) > keys:
                return None
            found = Picker(stream, self._ranges(files, *everything))
            # Kept for the next part of a query, which has other keys of the same stream.
            if self._kept + found.blocks > _KEPT_MAX:
                self._pickers.clear()
                self._kept = 0
            self._pickers[table, stream] = found
            self._kept += found.blocks
        return found if found.blocks else None

    def _holding(self, table: str, stream: int, after: int, until: int) -> list[TableFile]:
        """The files of a table that may hold a range."""
        first, end = _key(stream, after + 1), _key(stream, until + 1)
        found: list[TableFile] = []
        for live in self._live:
            if live.smallest >= end or live.largest < first:
                continue
            file = self._file(live.name)
            if file is None:
                raise NotPlain(live.name)
            if file.table == table:
                found.append(file)
        return found

    def _ranges(
        self, files: Sequence[TableFile], stream: int, after: int, until: int
    ) -> list[Range]:
        """What files have of a range, in its order; nothing where they have little."""
        candidates = [(file, file.blocks_of(stream, after, until)) for file in files]
        if sum(len(blocks.starts) for _, blocks in candidates) < _BLOCKS_MIN:
            return []
        first, end = _key(stream, after + 1), _key(stream, until + 1)
        found: list[Range] = []
        for file, blocks in candidates:
            keys = file.ends_of(blocks, first, end)
            if keys is not None:
                found.append(Range(file, _offset(keys[0]), _offset(keys[1]), blocks))
        return sorted(found, key=lambda each: each.first)

    def _file(self, name: str) -> TableFile | None:
        if name not in self._opened:
            try:
                self._opened[name] = TableFile(self._path / name.lstrip("/"))
            except NotPlain:
                self._opened[name] = None
        return self._opened[name]


def _key(stream: int, offset: int) -> bytes:
    return stream.to_bytes(8) + offset.to_bytes(8)


def _offset(key: bytes) -> int:
    return int.from_bytes(key[8:KEY_HEAD_BYTES])


def _stretch(memory: Any, rows: Rows) -> Stretch:
    """Rows as who reads the log gets them."""
    newest = int(memory[rows.values].max())
    return Stretch(BlockPage(memory, rows), int(rows.offsets[-1]), bytes([newest]))


def _groups(blocks: Handles) -> Iterator[tuple[int, int]]:
    """Neighbours together, up to some bytes."""
    begin = 0
    starts, ends = blocks.starts, blocks.starts + blocks.sizes
    while begin < len(starts):
        stop = int(np.searchsorted(ends, int(starts[begin]) + _GROUP_BYTES, side="right"))
        stop = max(stop, begin + 1)
        yield begin, stop
        begin = stop


def _taken_apart(data: Any, starts: Any, ends: Any) -> Rows:
    """All rows of blocks, in order.

    Raises:
        NotPlain: there is something else than messages.
    """
    at, until = restarts(data, starts, ends)
    lanes: Any = np.arange(len(at))
    high: Any = np.zeros(len(at), dtype=np.uint64)
    low: Any = np.zeros(len(at), dtype=np.uint64)
    steps: list[Rows] = []
    taken: list[Any] = []
    while len(lanes):
        shared, fresh, size, at = entry(data, at)
        # As if what is shared stood before: it is taken from the row before.
        key = at - shared
        values = at + fresh
        ends_at = values + size
        if int(shared.max()) > KEY_HEAD_BYTES:
            raise NotPlain("another kind of key")
        if int(shared.min()) < 8:
            kept = KEPT[np.minimum(shared, 8)]
            high = (high & kept) | (words(data, key, ">u8") & ~kept)
        kept = KEPT[np.maximum(shared - 8, 0)]
        low = (low & kept) | (words(data, key + 8, ">u8") & ~kept)
        steps.append(Rows(high, low, key + KEY_HEAD_BYTES, values, ends_at))
        taken.append(lanes)
        going = ends_at < until
        if going.all():
            at = ends_at
        else:
            if bool((ends_at > until).any()):
                raise NotPlain("an entry beyond its block")
            lanes, until, at = lanes[going], until[going], ends_at[going]
            high, low = high[going], low[going]
    rows = _in_order(steps, taken)
    tokens = rows.values - KEY_TRAILER_BYTES - rows.tokens
    if len(tokens) and (
        int(tokens.min()) < 0 or not bool((data[rows.values - KEY_TRAILER_BYTES] == VALUE).all())
    ):
        raise NotPlain("a row that is no value")
    return rows


def _in_order(steps: list[Rows], taken: list[Any]) -> Rows:
    """Rows that were found a step of each stretch at a time, stretch by stretch."""
    if not steps:
        nothing: Any = np.empty(0, dtype=np.int64)
        return Rows(nothing, nothing, nothing, nothing, nothing)
    counts = np.bincount(np.concatenate(taken))
    firsts = np.cumsum(counts) - counts
    places = [firsts[lanes] + step for step, lanes in enumerate(taken)]
    made = []
    for field in zip(*steps, strict=True):
        column = np.empty(int(counts.sum()), dtype=field[0].dtype)
        for place, values in zip(places, field, strict=True):
            column[place] = values
        made.append(column)
    return Rows(*made)


def _within(rows: Rows, stream: int, after: int, until: int) -> Rows:
    """The rows of a range."""
    wanted: Any = rows.streams == np.uint64(stream)
    wanted &= (rows.offsets > np.uint64(after)) & (rows.offsets <= np.uint64(until))
    # In order of their keys those of a range are neighbours.
    first = int(wanted.argmax()) if len(wanted) else 0
    return rows.cut(first, first + int(np.count_nonzero(wanted)))
