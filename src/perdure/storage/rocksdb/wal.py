"""Write-ahead logs as they lie on the disk: how far they are whole, and what is in them.

RocksDB drops, without a word, what follows the first record that it cannot read. So a log is looked
at before RocksDB opens it, without being changed: headers and the numbers of writes, which ascend
without a hole; checksums only where something is wrong, because RocksDB verifies all of them.

A record holds one batch, of RocksDB's own making (``write_batch.cc``), little-endian::

    sequence of its first write (8) | writes (4) | writes, each: kind (1) [table] key [value]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb.frames import BLOCK_BYTES, Frames

HOLE: Final = "writes are missing between two records"

_HEAD_BYTES: Final = 12

_DELETE, _PUT = 0, 1
_TABLE_DELETE, _TABLE_PUT = 4, 5
_TABLE_RANGE, _RANGE = 14, 15


class LogScan(NamedTuple):
    """What one write-ahead log holds.

    Attributes:
        number: of the file.
        size: bytes.
        first: sequence of its first write; 0 = none.
        last: sequence of the last write before the problem, or of all; 0 = none.
        intact_bytes: up to where it is whole.
        problem: why no further (``frames``, or ``HOLE``); empty = it is whole.
        zeros: whether only zeros lie at the problem, up to the next block or record.
        behind_records, behind_writes: intact ones after the problem.
        behind_at: byte at which they begin.
        behind_last: sequence of the last of them.
    """

    number: int
    size: int
    first: int
    last: int
    intact_bytes: int
    problem: str = ""
    zeros: bool = False
    behind_records: int = 0
    behind_writes: int = 0
    behind_at: int = 0
    behind_last: int = 0

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.number:06}.log"


def scan_log(file: Path, *, verify: bool) -> LogScan:
    """Look at a write-ahead log.

    Args:
        file: ``<number>.log``.
        verify: all checksums, too; else only those after a problem.

    Raises:
        OSError: it cannot be read.
    """
    data = file.read_bytes()
    size = len(data)
    frames = Frames(data, 0 if verify else size)
    first = following = 0
    while frames.next():
        head = frames.head(_HEAD_BYTES)
        sequence = int.from_bytes(head[:8], "little")
        count = int.from_bytes(head[8:], "little")
        if len(head) < _HEAD_BYTES or (first and sequence != following):
            frames.at = frames.start
            frames.problem = HOLE
            break
        if not first:
            first = sequence
        following = sequence + count
    last = following - 1 if first else 0
    if not frames.problem:
        return LogScan(int(file.stem), size, first, last, size)
    intact, problem = frames.start if frames.problem == HOLE else frames.at, frames.problem
    records, writes, begin, newest = _behind(data, intact, problem)
    stop = min(begin or size, (intact // BLOCK_BYTES + 1) * BLOCK_BYTES)
    zeros = not data[intact:stop].strip(b"\0")
    return LogScan(
        int(file.stem), size, first, last, intact, problem, zeros, records, writes, begin, newest
    )


def _behind(data: bytes, at: int, problem: str) -> tuple[int, int, int, int]:
    """Intact records from a byte on: their number, their writes, the first byte, the last
    sequence."""
    frames = Frames(data, 0)
    frames.at = at
    records = writes = begin = newest = 0
    if problem != HOLE and not frames.resume():
        return 0, 0, 0, 0
    while True:
        while frames.next():
            head = frames.head(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES:
                continue
            begin = begin or frames.start
            records += 1
            count = int.from_bytes(head[8:], "little")
            writes += count
            newest = max(newest, int.from_bytes(head[:8], "little") + count - 1)
        if not frames.problem or not frames.resume():
            return records, writes, begin, newest


def log_batches(file: Path, *, from_byte: int = 0) -> Iterator[bytes]:
    """The intact batches of a log, those behind damage, too."""
    frames = Frames(file.read_bytes(), 0)
    frames.at = from_byte
    while True:
        while frames.next():
            yield frames.payload()
        if not frames.problem or not frames.resume():
            return


class Write(NamedTuple):
    """One write of a batch; ``value`` None = the key is deleted, or all keys up to ``until``."""

    table: int
    key: bytes
    value: bytes | None
    until: bytes | None = None


def batch_writes(batch: bytes) -> Iterator[Write]:
    """The writes of a batch.

    Raises:
        StorageCorrupt: it does not decode.
    """
    reader = _Reader(batch, _HEAD_BYTES)
    while reader.at < len(batch):
        kind = batch[reader.at]
        reader.at += 1
        table = reader.number() if kind in (_TABLE_DELETE, _TABLE_PUT, _TABLE_RANGE) else 0
        key = reader.data()
        if kind in (_PUT, _TABLE_PUT):
            yield Write(table, key, reader.data())
        elif kind in (_DELETE, _TABLE_DELETE):
            yield Write(table, key, None)
        elif kind in (_RANGE, _TABLE_RANGE):
            yield Write(table, key, None, reader.data())
        else:
            raise StorageCorrupt(f"a batch holds a write of kind {kind}")


class _Reader:
    def __init__(self, batch: bytes, at: int) -> None:
        self._batch = batch
        self.at = at

    def number(self) -> int:
        value = shift = 0
        while self.at < len(self._batch):
            byte = self._batch[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise StorageCorrupt("a batch is cut short")

    def data(self) -> bytes:
        size = self.number()
        found = self._batch[self.at : self.at + size]
        self.at += size
        if self.at > len(self._batch):
            raise StorageCorrupt("a batch is cut short")
        return found
