"""``perdure.synced``: how far the database had been synced, in a file of its own.

A write-ahead log does not say where it ends: one that lost its last records looks like one that
never had them. So after each sync the number of the last write that it covered is written here, in
place, without a sync of its own. After ``kill -9`` it is exact; after a power cut it says, at
worst, less than was synced. At the next start the logs must reach as far (``survey``).

::

    byte 0     "PSYN" | version=1 (1) | sequence (8) | the one before (8) | CRC-32 (4)
    byte 512   length (4) | CRC-32 (4) | MessagePack: what files there were (``Files``)

Integers are big-endian; each part lies in a sector, or is checked as a whole. A sequence of 0 says
that a new database was being made.

Invariant: the file never claims more than a sync that ended well has covered.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple, final

import msgspec

from perdure.errors import StorageFull, StorageUnavailable
from perdure.files import sync_directory

FILE_NAME: Final = "perdure.synced"

_CLAIM: Final = struct.Struct(">4sBQQ")
_CHECK: Final = struct.Struct(">I")
_PART: Final = struct.Struct(">II")
_MAGIC: Final = b"PSYN"
_VERSION: Final = 1
_FILES_AT: Final = 512
_BYTES_MIN: Final = 4096


class Claim(NamedTuple):
    """What was synced.

    Attributes:
        sequence: RocksDB's number of the last write that the last sync covered.
        previous: the same of the sync before it.
    """

    sequence: int
    previous: int


class Files(msgspec.Struct, frozen=True, array_like=True):
    """What files a database had.

    Attributes:
        logs: number and length of each write-ahead log, as a sync has covered it.
        manifest: name of its manifest; empty = not known.
        manifest_bytes: a length that the manifest had reached for some time.
        tables: names by number.
        rows: those that say what the database, its generations and their topics are, key and value:
            they are few, and without them no other row can be read.
    """

    logs: tuple[tuple[int, int], ...] = ()
    manifest: str = ""
    manifest_bytes: int = 0
    tables: dict[int, str] = {}
    rows: dict[bytes, bytes] = {}


class Said(NamedTuple):
    """What the file says; None where it is not there or damaged."""

    claim: Claim | None
    files: Files | None


_files_decoder = msgspec.msgpack.Decoder(Files)


def read_synced(path: Path) -> Said:
    """What the file in a data directory says."""
    try:
        data = (path / FILE_NAME).read_bytes()
    except OSError:
        return Said(None, None)
    return Said(_decode_claim(data), _decode_files(data))


@final
class SyncedFile:
    """The file of a database that is open for writing.

    Args:
        path: the data directory.

    Raises:
        StorageFull, StorageUnavailable: it cannot be made.
    """

    __slots__ = ("_file", "_sequence", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        claim = read_synced(path).claim
        self._sequence = claim.sequence if claim is not None else 0
        try:
            self._file = os.open(path / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if os.fstat(self._file).st_size < _BYTES_MIN:
                self._make()
        except OSError as error:
            raise unusable(path, error) from error

    def begin(self, sequence: int) -> None:
        """The database was opened: it reaches so far, and all of it is synced."""
        self._sequence = sequence
        try:
            os.pwrite(self._file, _encode(sequence, sequence), 0)
            os.fsync(self._file)
        except OSError as error:
            raise unusable(self.path, error) from error

    def reached(self, sequence: int) -> None:
        """A sync has covered every write up to this one."""
        before = self._sequence
        if sequence <= before:
            return
        self._sequence = sequence
        # One that is not written claims less: the disk will tell the next sync.
        _try_write(self._file, _encode(sequence, before), 0)

    def note_files(self, files: Files) -> None:
        """What files there are now."""
        data = msgspec.msgpack.encode(files)
        _try_write(self._file, _PART.pack(len(data), zlib.crc32(data)) + data, _FILES_AT)

    def close(self, *, sync: bool) -> None:
        """Close it.

        Args:
            sync: make it safe against power loss, too.
        """
        try:
            if sync:
                os.fsync(self._file)
        finally:
            os.close(self._file)

    def _make(self) -> None:
        """A file whose length does not change any more, and whose name survives a power cut."""
        os.pwrite(self._file, _encode(self._sequence, self._sequence).ljust(_BYTES_MIN, b"\0"), 0)
        os.fsync(self._file)
        sync_directory(self.path)


def unusable(path: Path, error: OSError) -> StorageFull | StorageUnavailable:
    """The error of our own tree for a file of ours that cannot be written."""
    text = f"{path} cannot be written: {error.strerror}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full:
        return StorageFull("no space left for the database", hint=text)
    return StorageUnavailable(text)


def _try_write(file: int, data: bytes, at: int) -> None:
    try:
        os.pwrite(file, data, at)
    except OSError:
        return


def _encode(sequence: int, previous: int) -> bytes:
    claim = _CLAIM.pack(_MAGIC, _VERSION, sequence, previous)
    return claim + _CHECK.pack(zlib.crc32(claim))


def _decode_claim(data: bytes) -> Claim | None:
    claim = data[: _CLAIM.size]
    check = data[_CLAIM.size : _CLAIM.size + _CHECK.size]
    if len(check) < _CHECK.size or zlib.crc32(claim) != _CHECK.unpack(check)[0]:
        return None
    magic, version, sequence, previous = _CLAIM.unpack(claim)
    if magic != _MAGIC or version != _VERSION:
        return None
    return Claim(sequence, previous)


def _decode_files(data: bytes) -> Files | None:
    head = data[_FILES_AT : _FILES_AT + _PART.size]
    if len(head) < _PART.size:
        return None
    length, check = _PART.unpack(head)
    body = data[_FILES_AT + _PART.size : _FILES_AT + _PART.size + length]
    if len(body) < length or zlib.crc32(body) != check:
        return None
    try:
        return _files_decoder.decode(body)
    except ValueError:
        return None
