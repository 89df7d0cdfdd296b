"""Table files of RocksDB: which of their blocks hold a range of keys, and the bytes of those.

A reader of whole streams takes blocks as they lie in the files, and not row by row
(``block_rows``). What is read here is what RocksDB's block-based format of version 6 has: a footer,
properties, an index in parts, and blocks with a checksum each. Everything else, a block that is
damaged too, raises ``NotPlain``: then RocksDB reads, and says what is wrong.

Invariant: a block is given only if its checksum holds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from perdure.pipeline.arrays import words

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
_RESTARTS_MAX: Final = 1 << 20
"""Entries of a block that have their key in full; the bits above say what is not read here."""

_PADDING: Final = bytes(16)
"""Behind blocks: what reads words may look a little further than there are keys."""


class NotPlain(Exception):
    """A file has something that is not read here, or is damaged, or is gone."""


class Handles(NamedTuple):
    """Blocks of a file, a numpy array for each field.

    Attributes:
        streams, offsets: the first sixteen bytes of what no key of the block is greater than.
        starts, sizes: where it lies.
    """

    streams: Any
    offsets: Any
    starts: Any
    sizes: Any


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

    def blocks_of(self, stream: int, after: int, until: int) -> tuple[Any, Any]:
        """Where the blocks lie, and how large they are, that hold keys of a stream with offsets
        in ``(after, until]``, and perhaps one more on each side."""
        first, end = _between(self._top, stream, after, until)
        if first == end:
            return self._top.starts[:0], self._top.sizes[:0]
        parts = self._handles(self._top.starts[first:end], self._top.sizes[first:end])
        low, high = _between(parts, stream, after, until)
        return parts.starts[low:high], parts.sizes[low:high]

    def first_key(self, starts: Any, sizes: Any, first: bytes, end: bytes) -> bytes | None:
        """The first key of blocks in ``[first, end)``, with its trailer.

        Raises:
            NotPlain: a block before it is damaged, or compressed in a way that is not read here.
        """
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            for key, _ in _entries(self._block(start, size)):
                if key >= first:
                    return key if key < end else None
        return None

    def read(self, starts: Any, sizes: Any) -> Blocks:
        """Blocks that follow each other.

        Raises:
            NotPlain: one is damaged, or compressed in a way that is not read here.
        """
        first, end = int(starts[0]), int(starts[-1] + sizes[-1])
        where = list(zip(starts.tolist(), sizes.tolist(), strict=True))
        if end + _TRAILER_BYTES > len(self._data):
            raise NotPlain("a block beyond the end")
        if not self._bytes[starts + sizes].any():
            self._check_plain(starts, sizes, where)
            # Blocks are followed by others and by the footer: there is no end to look beyond.
            return Blocks(
                self._bytes[first : end + len(_PADDING)], starts - first, starts + sizes - first
            )
        made = [self._block(start, size) for start, size in where]
        ends = np.cumsum([len(block) for block in made])
        begins = np.concatenate([[0], ends[:-1]])
        data: Any = np.frombuffer(b"".join([*made, _PADDING]), dtype=np.uint8)
        return Blocks(data, begins, ends)

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
        return Handles(streams, offsets, found, varints(data, at)[0])

    def _block(self, start: int, size: int) -> bytes:
        kind = self._check(start, size)
        found = self._data[start : start + size]
        if kind == _PLAIN:
            return found
        if kind != _LZ4:
            raise NotPlain("another compression")
        count, at = _varint(found, 0)
        return bytes(_lz4.decompress(memoryview(found)[at:], count, asbytes=True))

    def _check_plain(self, starts: Any, sizes: Any, where: list[tuple[int, int]]) -> None:
        """Make sure that blocks that are not compressed are as they were written."""
        data = memoryview(self._data)
        sums = [xxh3_64_intdigest(data[start : start + size]) & _MASK for start, size in where]
        found: Any = np.array(sums, dtype=np.int64)
        if self._context:
            found += self._context ^ ((starts & _MASK) + (starts >> 32) & _MASK)
        said = words(self._bytes, starts + sizes + 1, "<u4")
        if not bool(((found & _MASK) == said).all()):
            raise NotPlain("a damaged block")

    def _check(self, start: int, size: int) -> int:
        """How a block is compressed."""
        end = start + size
        if end + _TRAILER_BYTES > len(self._data):
            raise NotPlain("a block beyond the end")
        kind = self._data[end]
        said = int.from_bytes(self._data[end + 1 : end + _TRAILER_BYTES], "little")
        found = (xxh3_64_intdigest(self._bytes[start:end]) & _MASK) ^ (kind * _LAST_BYTE_PRIME)
        if self._context:
            found += self._context ^ ((start & _MASK) + (start >> 32) & _MASK)
        if found & _MASK != said:
            raise NotPlain("a damaged block")
        return kind


_lz4: Final = pa.Codec("lz4_raw")

KEPT: Final = np.array(
    [(_FULL := (1 << 64) - 1) ^ (_FULL >> 8 * kept) for kept in range(9)], np.uint64
)
"""Masks that keep so many of the first bytes of a word."""


def varints(data: Any, at: Any) -> tuple[Any, Any]:
    """The numbers of variable length at some places, and what follows each."""
    value = data[at].astype(np.int64)
    at = at + 1
    more = value >= 0x80
    if not more.any():
        return value, at
    value &= 0x7F
    for shift in range(7, 64, 7):
        byte = data[at].astype(np.int64)
        value |= np.where(more, (byte & 0x7F) << shift, 0)
        at += more
        more &= byte >= 0x80
        if not more.any():
            return value, at
    raise NotPlain("a number that does not end")


def restarts(data: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """The entries of blocks that have their keys in full: where they begin, and where the next of
    them does, or the entries end."""
    counts = words(data, ends - 4, "<u4").astype(np.int64)
    if counts.max(initial=0) > _RESTARTS_MAX or counts.min(initial=1) < 1:
        raise NotPlain("another kind of block")
    lists = ends - 4 - 4 * counts
    firsts = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    found = np.repeat(starts, counts) + words(data, np.repeat(lists, counts) + 4 * within, "<u4")
    until = np.empty_like(found)
    until[:-1] = found[1:]
    until[firsts + counts - 1] = lists
    return found, until


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
