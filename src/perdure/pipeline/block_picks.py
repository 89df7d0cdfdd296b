"""Rows of a stream that are picked out of the blocks of table files, thousands at a time.

Of each row the offset is known. The index of a file says in which block it is, the block's entries
with keys in full behind which of them; from there all rows go from entry to entry at once, until
each has come to its own. RocksDB does the same row by row, and looks into filters and caches for
each.

Invariant: what is given has just the key that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, final

import numpy as np
import pyarrow.compute as pc

from perdure.pipeline.arrays import pieces, words
from perdure.pipeline.block_entries import KEPT, NotPlain, entry, restarts
from perdure.pipeline.block_page import KEY_HEAD_BYTES, KEY_TRAILER_BYTES, Rows
from perdure.pipeline.table_files import Blocks, Handles, Pieces, TableFile, joined

VALUE: Final = 1
"""What a row was: a value."""

_ROWS_AT_ONCE: Final = 4_096
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""Of blocks, as they lie in a file; a row alone may have more."""

_LAST: Final = np.uint64((1 << 64) - 1)


class Keys(NamedTuple):
    """Keys of a stream: their offsets, as numpy, and what else they have, as an Arrow array."""

    offsets: Any
    tokens: Any

    @classmethod
    def of(cls, keys: Sequence[bytes]) -> Keys:
        """Some keys."""
        joined_keys = b"".join(keys)
        lengths: Any = np.fromiter(map(len, keys), np.int64, len(keys))
        ends = np.cumsum(lengths)
        starts = ends - lengths
        offsets = words(joined_keys, starts + 8, ">u8")
        return cls(offsets, pieces(joined_keys, starts + KEY_HEAD_BYTES, ends))


class Range(NamedTuple):
    """What a stream has in one file: the first and the last offset of the range, and blocks."""

    file: TableFile
    first: int
    last: int
    blocks: Handles


class _Holder(NamedTuple):
    """A file, and of its blocks: the last offset that each may have, and where it lies."""

    file: TableFile
    lasts: Any
    starts: Any
    sizes: Any


@final
class Picker:
    """Finds rows of a range.

    Args:
        stream: in a table.
        ranges: of its files, in order.

    Attributes:
        blocks: how many there are.

    Raises:
        NotPlain: files have the same range.
    """

    def __init__(self, stream: int, ranges: Sequence[Range]) -> None:
        if any(one.last >= behind.first for one, behind in pairwise(ranges)):
            raise NotPlain("files that hold the same range")
        self._stream = np.uint64(stream)
        self._firsts: Any = np.array([each.first for each in ranges], dtype=np.uint64)
        self._holders = [
            _Holder(each.file, _lasts(each.blocks, self._stream), each.blocks.starts, sizes)
            for each in ranges
            for sizes in [each.blocks.sizes.astype(np.int32)]
        ]
        self.blocks = sum(len(each.sizes) for each in self._holders)

    def pick(self, keys: Keys, at: int) -> tuple[int, Any, Rows]:
        """Rows from one on: how many were looked for, memory, and those of them that are there
        before the first that is not.

        Args:
            keys: that ascend.
            at: which is the first.

        Raises:
            NotPlain: there is something else than messages.
        """
        wanted = keys.offsets[at : at + _ROWS_AT_ONCE]
        asked, blocks, least = self._blocks(wanted)
        if blocks is None:
            return asked, None, _NOTHING
        rows = self._rows(blocks, least, wanted[:asked])
        count = len(rows.offsets)
        if count:
            tokens = pieces(blocks.data, rows.tokens, rows.values - KEY_TRAILER_BYTES)
            same = pc.equal(tokens, keys.tokens[at : at + count])
            if same.true_count < count:
                # Another token with the same hash.
                rows = rows.cut(0, pc.index(same, False).as_py())
        return asked, blocks.data, rows

    def _blocks(self, wanted: Any) -> tuple[int, Blocks | None, Any]:
        """How many of some offsets are looked for together; the blocks that have them, or None;
        and for each of these what offset of the stream the first one in its file is."""
        which = self._firsts.searchsorted(wanted, side="right") - 1
        found: list[Pieces] = []
        least: list[Any] = []
        asked, left = 0, _BYTES_AT_ONCE
        for number in range(max(int(which[0]), 0), int(which[-1]) + 1):
            each = self._holders[number]
            low, high = which.searchsorted((number, number + 1)).tolist()
            at = each.lasts.searchsorted(wanted[low:high])
            at = at[: at.searchsorted(len(each.lasts))]
            firsts = np.flatnonzero(np.diff(at, prepend=-1))
            used = at[firsts]
            sizes = each.sizes[used]
            fit = int(np.cumsum(sizes).searchsorted(left, side="right"))
            if not asked:
                fit = max(fit, 1)
            used, sizes = used[:fit], sizes[:fit]
            if len(used):
                found.append(each.file.pieces(each.starts[used], sizes))
                least.append(np.full(len(used), self._firsts[number]))
            if fit < len(firsts):
                asked = low + int(firsts[fit])
                break
            asked, left = high, left - int(sizes.sum())
        if not found:
            return max(asked, 1), None, None
        return max(asked, 1), joined(found), np.concatenate(least)

    def _rows(self, blocks: Blocks, least: Any, wanted: Any) -> Rows:
        """The rows of offsets in blocks, up to the first that is not there."""
        data, stream = blocks.data, self._stream
        at, until = restarts(data, blocks.starts, blocks.ends)
        key = entry(data, at)[3]
        streams, offsets = words(data, key, ">u8"), words(data, key + 8, ">u8")
        if bool((streams != stream).any()):
            before = streams < stream
            offsets[before] = least[blocks.starts.searchsorted(at[before], side="right") - 1]
            kept = streams <= stream
            at, until, offsets = at[kept], until[kept], offsets[kept]
        assert not bool((offsets[1:] < offsets[:-1]).any())
        begin = offsets.searchsorted(wanted, side="right") - 1
        if not len(at) or int(begin[0]) < 0:
            return _NOTHING
        tokens, values, ends = _walked(data, at[begin], until[begin], stream, wanted)
        missing = np.flatnonzero(ends == 0)
        count = int(missing[0]) if len(missing) else len(wanted)
        rows = Rows(np.full(len(wanted), stream), wanted, tokens, values, ends).cut(0, count)
        if count and not bool((data[rows.values - KEY_TRAILER_BYTES] == VALUE).all()):
            raise NotPlain("a row that is no value")
        return rows


_nothing: Any = np.empty(0, dtype=np.int64)
_NOTHING: Final = Rows(_nothing, _nothing, _nothing, _nothing, _nothing)


def _lasts(blocks: Handles, stream: Any) -> Any:
    """The last offset that each block may have of a stream whose keys have tokens."""
    # Without tokens it is less than the key with that offset, which is in the next block.
    last = blocks.offsets - (blocks.short & (blocks.offsets > 0))
    # What ends with a key of another stream holds all that is left of this one.
    return np.where(blocks.streams == stream, last, _LAST)


def _walked(data: Any, at: Any, until: Any, stream: Any, wanted: Any) -> tuple[Any, Any, Any]:
    """Where tokens, value and end of the rows of offsets are, each looked for from one entry up to
    another; all 0 = it is not there."""
    count = len(wanted)
    tokens, values, ends = (np.zeros(count, dtype=np.int64) for _ in range(3))
    lanes: Any = np.arange(count)
    high: Any = np.zeros(count, dtype=np.uint64)
    low: Any = np.zeros(count, dtype=np.uint64)
    while len(lanes):
        shared, fresh, size, at = entry(data, at)
        if int(shared.max()) > KEY_HEAD_BYTES:
            raise NotPlain("another kind of key")
        # As if what is shared stood before: it is taken from the row before.
        key = at - shared
        value = at + fresh
        at = value + size
        if int(shared.min()) < 8:
            kept = KEPT[np.minimum(shared, 8)]
            high = (high & kept) | (words(data, key, ">u8") & ~kept)
        kept = KEPT[np.maximum(shared - 8, 0)]
        low = (low & kept) | (words(data, key + 8, ">u8") & ~kept)
        hit: Any = (low == wanted) & (high == stream)
        if hit.any():
            done = lanes[hit]
            tokens[done] = key[hit] + KEY_HEAD_BYTES
            values[done] = value[hit]
            ends[done] = at[hit]
        going = ~hit & (at < until)
        if not going.all():
            lanes, at, until, wanted = lanes[going], at[going], until[going], wanted[going]
            high, low = high[going], low[going]
    return tokens, values, ends
