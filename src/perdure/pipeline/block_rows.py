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
from typing import Any, Final, NamedTuple, final

import numpy as np

from perdure.pipeline.arrays import words
from perdure.pipeline.block_page import KEY_HEAD_BYTES, KEY_TRAILER_BYTES, BlockPage, Rows
from perdure.pipeline.table_files import KEPT, NotPlain, TableFile, restarts, varints
from perdure.storage.rocksdb.blocks import LiveFile, Stretch

_VALUE: Final = 1
"""What it was: a value."""

_GROUP_BYTES: Final = 8 * 1024 * 1024
"""Bytes of blocks that are taken apart at once; a group of one block may have more."""

_PAGE_ROWS: Final = 16_384
"""Rows of a page; smaller and larger ones were slower."""

_BLOCKS_MIN: Final = 32
"""Blocks of a range below which RocksDB is as fast."""


class _Range(NamedTuple):
    """What a stream has in one file."""

    file: TableFile
    first: int
    starts: Any
    sizes: Any


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

    def pages(self, table: str, stream: int, after: int, until: int, at: int) -> Iterator[Stretch]:
        """What files have of a stream in ``(after, until]``, or the first part of it.

        Args:
            table: of the log.
            stream: in it.
            after, until: offsets of rows.
            at: no page has rows on both sides of this one.
        """
        try:
            ranges = self._ranges(table, stream, after, until)
            last = after
            for number, each in enumerate(ranges):
                behind = ranges[number + 1].first if number + 1 < len(ranges) else until + 1
                for start, end in _groups(each.starts, each.sizes):
                    blocks = each.file.read(each.starts[start:end], each.sizes[start:end])
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
                        some = rows.cut(low, high)
                        last = int(some.offsets[-1])
                        newest = int(blocks.data[some.values].max())
                        yield Stretch(BlockPage(blocks.data, some), last, bytes([newest]))
        except NotPlain:
            return

    def _ranges(self, table: str, stream: int, after: int, until: int) -> list[_Range]:
        """The files that hold a range, in its order."""
        first, end = _key(stream, after + 1), _key(stream, until + 1)
        candidates: list[tuple[TableFile, Any, Any]] = []
        blocks = 0
        for live in self._live:
            if live.smallest >= end or live.largest < first:
                continue
            file = self._file(live.name)
            if file is None or file.table != table:
                if file is None:
                    raise NotPlain(live.name)
                continue
            starts, sizes = file.blocks_of(stream, after, until)
            blocks += len(starts)
            candidates.append((file, starts, sizes))
        if blocks < _BLOCKS_MIN:
            return []
        found: list[_Range] = []
        for file, starts, sizes in candidates:
            key = file.first_key(starts, sizes, first, end)
            if key is not None:
                found.append(_Range(file, _offset(key), starts, sizes))
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


def _groups(starts: Any, sizes: Any) -> Iterator[tuple[int, int]]:
    """Neighbours together, up to some bytes."""
    begin = 0
    ends = starts + sizes
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
        shared, fresh, size, at = _entry(data, at)
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
        int(tokens.min()) < 0 or not bool((data[rows.values - KEY_TRAILER_BYTES] == _VALUE).all())
    ):
        raise NotPlain("a row that is no value")
    return rows


def _entry(data: Any, at: Any) -> tuple[Any, Any, Any, Any]:
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
