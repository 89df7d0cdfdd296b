"""Table files of RocksDB: which of their blocks hold a range of keys, and the bytes of those.

A reader of whole streams takes blocks as they lie in the files, and not row by row
(``block_rows``). What is read here is what RocksDB's block-based format of version 6 has: a footer,
properties, an index in parts, and blocks with a checksum each. Everything else, a block that is
damaged too, raises ``NotPlain``: then RocksDB reads, and says what is wrong.

Invariant: a block is given only if its checksum holds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from perdure.pipeline.arrays import words
from perdure.pipeline.block_entries import KEPT, NotPlain, restarts, varints

_FOOTER_BYTES: Final = 53
_MAGIC: Final = bytes.fromhex("f7cff485b741e288")
_EXTENDED_MAGIC: Final = bytes.fromhex("3e007a00")
_FORMAT: Final = 6
_XXH3: Final = 4
_TRAILER_BYTES: Final = 5
"""Behind a block: how it is compressed, and its checksum."""
_LAST_BYTE_PRIME: Final = 0x6B9083D9
_MASK: Final = 0xFFFFFFFF

_PLAIN: Final = 0
_LZ4: Final = 4

_KEY_TRAILER_BYTES: Final = 8
_FRAME_BLOCKS: Final = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""How large the blocks of a frame of LZ4 can be; it says which it is."""

_JOINED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Blocks that are read together may have a little more than they take in a file, not far more."""

_PADDING: Final = bytes(16)
"""Behind blocks: what reads words may look a little further than there are keys."""


class Pieces(NamedTuple):
    """Blocks as they lie in a file.

    Attributes:
        data: the bytes of each.
        sizes: how many they are decompressed, as numpy.
        packed: which of them are compressed, as numpy.
    """

    data: list[bytes]
    sizes: Any
    packed: Any


class Handles(NamedTuple):
    """Blocks of a file, a numpy array for each field.

    Attributes:
        streams, offsets: the first sixteen bytes of what no key of the block is greater than.
        short: there are no more of these.
        starts, sizes: where it lies.
    """

    streams: Any
    offsets: Any
    short: Any
    starts: Any
    sizes: Any

    def cut(self, first: int, end: int) -> Handles:
        """Some of them."""
        return Handles(*(part[first:end] for part in self))


class Blocks(NamedTuple):
    """Blocks in one piece of memory.

    Attributes:
        data: all of them, and a little more.
        starts, ends: of each, in it.
    """

    data: Any
    starts: Any
    ends: Any


@final
class TableFile:
    """A table file.

    Args:
        path: of it.

    Attributes:
        table: the name of the table that it is of.

    Raises:
        NotPlain: it has another format.
    """

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise NotPlain(str(error)) from error
        self._bytes: Any = np.frombuffer(self._data, dtype=np.uint8)
        footer = self._data[-_FOOTER_BYTES:]
        if (
            len(footer) < _FOOTER_BYTES
            or footer[-8:] != _MAGIC
            or footer[1:5] != _EXTENDED_MAGIC
            or footer[0] != _XXH3
            or int.from_bytes(footer[-12:-8], "little") != _FORMAT
        ):
            raise NotPlain("another format")
        self._context = int.from_bytes(footer[9:13], "little")
        size = int.from_bytes(footer[13:17], "little")
        start = len(self._data) - _FOOTER_BYTES - _TRAILER_BYTES - size
        found = dict(_entries(self._block(start, size)))
        properties = dict(_entries(self._block(*_handle(found, b"rocksdb.properties"))))
        if (
            _number(properties, b"rocksdb.deleted.keys")
            or _number(properties, b"rocksdb.merge.operands")
            or _number(properties, b"rocksdb.num.range-deletions")
            or properties.get(b"rocksdb.block.based.table.index.type") != b"\x02\x00\x00\x00"
            or not _number(properties, b"rocksdb.index.value.is.delta.encoded")
        ):
            raise NotPlain("what is not read here")
        self.table = properties.get(b"rocksdb.column.family.name", b"").decode()
        plain_keys = _number(properties, b"rocksdb.index.key.is.user.key")
        self._cut = 0 if plain_keys else _KEY_TRAILER_BYTES
        start, size = _handle(found, b"rocksdb.index")
        self._top = self._handles(np.array([start]), np.array([size]))

    def parts_of(self, stream: int, after: int, until: int) -> int:
        """How many parts of the index ``blocks_of`` reads."""
        first, end = _between(self._top, stream, after, until)
        return end - first

    def blocks_of(self, stream: int, after: int, until: int) -> Handles:
        """The blocks that hold keys of a stream with offsets in ``(after, until]``, and perhaps
        one more on each side."""
        first, end = _between(self._top, stream, after, until)
        if first == end:
            return self._top.cut(0, 0)
        parts = self._handles(self._top.starts[first:end], self._top.sizes[first:end])
        return parts.cut(*_between(parts, stream, after, until))

    def ends_of(self, blocks: Handles, first: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The first and the last key of blocks in ``[first, end)``, with their trailers.

        Raises:
            NotPlain: a block is damaged, or compressed in a way that is not read here.
        """
        places = list(zip(blocks.starts.tolist(), blocks.sizes.tolist(), strict=True))
        lowest = self._first_keys(places, first, end)
        if not lowest:
            return None
        return lowest[0], self._first_keys(reversed(places), first, end)[-1]

    def _first_keys(
        self, places: Iterable[tuple[int, int]], first: bytes, end: bytes
    ) -> list[bytes]:
        """The keys in ``[first, end)`` of the first block that has any."""
        for start, size in places:
            keys = [key for key, _ in _entries(self._block(start, size))]
            if found := [key for key in keys if first <= key < end]:
                return found
        return []

    def read(self, starts: Any, sizes: Any) -> Blocks:
        """Blocks in the order of the file.

        Raises:
            NotPlain: one is damaged, or compressed in a way that is not read here.
        """
        kinds = self._checked(starts, sizes)
        if kinds.any():
            return joined([self._pieces(starts, sizes, kinds)])
        # Blocks are followed by others and by the footer: there is no end to look beyond.
        first, end = int(starts[0]), int(starts[-1] + sizes[-1])
        return Blocks(
            self._bytes[first : end + len(_PADDING)], starts - first, starts + sizes - first
        )

    def pieces(self, starts: Any, sizes: Any) -> Pieces:
        """The bytes of blocks, as they lie in the file.

        Raises:
            NotPlain: as ``read``.
        """
        return self._pieces(starts, sizes, self._checked(starts, sizes))

    def _pieces(self, starts: Any, sizes: Any, kinds: Any) -> Pieces:
        data = self._data
        # Copies: views of so many blocks have Python collect garbage again and again.
        ends = (starts + sizes).tolist()
        found = [data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
        packed = kinds == _LZ4
        if bool(kinds[~packed].any()):
            raise NotPlain("another compression")
        if packed.any():
            sizes = sizes.astype(np.int64)
            sizes[packed], bodies = varints(self._bytes, starts[packed])
            at = np.flatnonzero(packed)
            for number, head in zip(at.tolist(), (bodies - starts[packed]).tolist(), strict=True):
                found[number] = found[number][head:]
        return Pieces(found, sizes, packed)

    def _checked(self, starts: Any, sizes: Any) -> Any:
        """How blocks are compressed, each of which is as it was written."""
        ends = starts + sizes
        if len(ends) and int(ends.max()) + _TRAILER_BYTES > len(self._data):
            raise NotPlain("a block beyond the end")
        kinds = self._bytes[ends].astype(np.int64)
        data = memoryview(self._data)
        where = zip(starts.tolist(), ends.tolist(), strict=True)
        found = (xxh3_64_intdigest(data[start:end]) for start, end in where)
        sums: Any = np.fromiter(found, np.uint64, len(ends))
        sums = (sums & np.uint64(_MASK)).astype(np.int64) ^ ((kinds * _LAST_BYTE_PRIME) & _MASK)
        if self._context:
            sums += self._context ^ ((starts & _MASK) + (starts >> 32) & _MASK)
        if not bool(((sums & _MASK) == words(self._bytes, ends + 1, "<u4")).all()):
            raise NotPlain("a damaged block")
        return kinds

    def _handles(self, starts: Any, sizes: Any) -> Handles:
        """What blocks of the index say of blocks: entries with their keys in full."""
        data, begins, ends = self.read(starts, sizes)
        at, _ = restarts(data, begins, ends)
        shared, at = varints(data, at)
        if shared.any():
            raise NotPlain("an index whose keys are not in full")
        lengths, at = varints(data, at)
        keys = at
        found, at = varints(data, at + lengths)
        lengths = lengths - self._cut
        streams = words(data, keys, ">u8") & KEPT[np.clip(lengths, 0, 8)]
        offsets = words(data, keys + 8, ">u8") & KEPT[np.clip(lengths - 8, 0, 8)]
        return Handles(streams, offsets, lengths <= 16, found, varints(data, at)[0])

    def _block(self, start: int, size: int) -> bytes:
        kind = int(self._checked(np.array([start]), np.array([size]))[0])
        found = self._data[start : start + size]
        if kind == _PLAIN:
            return found
        if kind != _LZ4:
            raise NotPlain("another compression")
        count, at = _varint(found, 0)
        return bytes(_lz4.decompress(memoryview(found)[at:], count, asbytes=True))


_lz4: Final = pa.Codec("lz4_raw")
_lz4_frame: Final = pa.Codec("lz4")


def joined(pieces: Sequence[Pieces]) -> Blocks:
    """Blocks, decompressed, in one piece of memory.

    A call for each that is compressed would cost more than decompressing it: so they become one
    frame of LZ4, and those that are not compressed blocks of it that repeat nothing.

    Raises:
        NotPlain: they are too large to be read together.
    """
    found = [each for some in pieces for each in some.data]
    sizes = np.concatenate([some.sizes for some in pieces]).astype(np.int64)
    packed = np.concatenate([some.packed for some in pieces])
    found.append(_PADDING)
    if not packed.any():
        data: Any = np.frombuffer(b"".join(found), np.uint8)
    else:
        total, largest = int(sizes.sum()) + len(_PADDING), int(sizes.max())
        if largest > _FRAME_BLOCKS[-1] or total > _JOINED_BYTES_MAX:
            raise NotPlain("large blocks")
        for at in (*np.flatnonzero(~packed).tolist(), len(found) - 1):
            found[at] = _literals(len(found[at])) + found[at]
        lengths = [len(each).to_bytes(4, "little") for each in found]
        parts = [b""] * (2 * len(found))
        parts[::2], parts[1::2] = lengths, found
        frame = b"".join([_frame_head(largest), *parts, bytes(4)])
        try:
            data = np.frombuffer(_lz4_frame.decompress(frame, total), np.uint8)
        except OSError as error:
            raise NotPlain("a block that cannot be decompressed") from error
    ends: Any = np.cumsum(sizes)
    return Blocks(data, ends - sizes, ends)


def _frame_head(largest: int) -> bytes:
    """What a frame of LZ4 begins with: its blocks know nothing of each other."""
    code = next(code for code, size in enumerate(_FRAME_BLOCKS, 4) if largest <= size)
    head = bytes([0x60, code << 4])
    return b"\x04\x22\x4d\x18" + head + bytes([(xxh32_intdigest(head) >> 8) & 0xFF])


def _literals(count: int) -> bytes:
    """What a block of LZ4 begins with that repeats nothing."""
    if count < 15:
        return bytes([count << 4])
    full, rest = divmod(count - 15, 255)
    return b"\xf0" + b"\xff" * full + bytes([rest])


def _between(handles: Handles, stream: int, after: int, until: int) -> tuple[int, int]:
    """Which blocks may hold keys of a stream with offsets in ``(after, until]``."""
    streams, offsets = handles.streams, handles.offsets
    low, high = streams.searchsorted(np.array([stream, stream + 1], dtype=np.uint64)).tolist()
    bounds: Any = np.array([after + 1, until + 1], dtype=np.uint64)
    # The first one that ends behind the range has some of it, too.
    first, end = (low + offsets[low:high].searchsorted(bounds)).tolist()
    return first, min(end + 1, len(streams))


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a small block."""
    restarts_bytes = 4 * int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - restarts_bytes
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _handle(found: dict[bytes, bytes], name: bytes) -> tuple[int, int]:
    if name not in found:
        raise NotPlain("another format")
    start, at = _varint(found[name], 0)
    return start, _varint(found[name], at)[0]


def _number(properties: dict[bytes, bytes], name: bytes) -> int:
    value = properties.get(name)
    return _varint(value, 0)[0] if value else 0
