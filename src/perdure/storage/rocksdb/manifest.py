"""RocksDB's manifest: which tables and files a database has, and where its logs begin.

Read so that damage can be named before RocksDB opens, and so writes, the files; and extended by one
edit when a file is given up. The fields that we know are those of RocksDB 9 (``version_edit.h``);
others that may be ignored are.

Numbers are of files: ``000012.sst``, ``000034.log``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple, final

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb.frames import BROKEN, Frames, frame

_LOG_NUMBER: Final = 2
_NEXT_FILE: Final = 3
_LAST_SEQUENCE: Final = 4
_COMPACT_CURSOR: Final = 5
_DELETED_FILE: Final = 6
_PREVIOUS_LOG: Final = 9
_MIN_LOG: Final = 10
_NEW_FILE: Final = 103
_FAMILY: Final = 200
_FAMILY_ADD: Final = 201
_FAMILY_DROP: Final = 202
_MAX_FAMILY: Final = 203
_GROUP: Final = 300
_COMPARATOR: Final = 1
_IGNORABLE: Final = 1 << 13
_FILE_FIELDS_END: Final = 1


class TableFile(NamedTuple):
    """One file of a table.

    Attributes:
        family: number of the table.
        level: 0 = as memory was flushed.
        number, size: of the file; bytes.
        smallest, largest: keys.
        first_sequence, last_sequence: of the writes in it.
    """

    family: int
    level: int
    number: int
    size: int
    smallest: bytes
    largest: bytes
    first_sequence: int
    last_sequence: int

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.number:06}.sst"

    def holds(self, table: str) -> str:
        """What is in it, for people.

        Args:
            table: its name.
        """
        if not self.level and self.first_sequence:
            writes = self.last_sequence - self.first_sequence + 1
            return f"it holds rows of table {table}, {writes} writes at most"
        return f"it holds rows of table {table}, {self.size} bytes"  # merged: sequences are gone


@final
class Manifest:
    """What a manifest says.

    Attributes:
        name: of its file.
        size: of its file, bytes.
        tables: names by number.
        dropped: numbers of tables that were dropped since it began.
        files: by number.
        last_sequence: of the last write when it was written.
        next_file: a number that no file has.
        problem: where and why it ends early, or empty.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.tables: dict[int, str] = {0: "default"}
        self.dropped: set[int] = set()
        self.files: dict[int, TableFile] = {}
        self.last_sequence = 0
        self.next_file = 0
        self.problem = ""
        self._min_log = 0
        self._log_numbers: dict[int, int] = {0: 0}

    @property
    def first_log(self) -> int:
        """No write-ahead log with a lower number is needed."""
        return max(self._min_log, min(self._log_numbers.values(), default=0))

    def apply(self, data: bytes) -> None:
        """Take in one edit.

        Raises:
            StorageCorrupt: it does not decode.
        """
        edit = _Edit(data)
        try:
            edit.read()
        except (IndexError, UnicodeDecodeError) as error:
            raise StorageCorrupt(f"{self.name} holds an edit that does not decode") from error
        family = edit.family
        if edit.added is not None:
            self.tables[family] = edit.added
            self._log_numbers.setdefault(family, 0)
        if edit.dropped:
            self.tables.pop(family, None)
            self.dropped.add(family)
            self._log_numbers.pop(family, None)
            for number in [n for n, file in self.files.items() if file.family == family]:
                del self.files[number]
        numbers = edit.numbers
        if _LOG_NUMBER in numbers and family in self._log_numbers:
            self._log_numbers[family] = max(self._log_numbers[family], numbers[_LOG_NUMBER])
        self._min_log = max(self._min_log, numbers.get(_MIN_LOG, 0))
        self.last_sequence = max(self.last_sequence, numbers.get(_LAST_SEQUENCE, 0))
        self.next_file = max(self.next_file, numbers.get(_NEXT_FILE, 0))
        for number in edit.deleted:
            self.files.pop(number, None)
        for file in edit.files:
            self.files[file.number] = file._replace(family=family)


@final
class _Edit:
    """One record of a manifest, decoded."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.family = 0
        self.added: str | None = None
        self.dropped = False
        self.numbers: dict[int, int] = {}
        self.deleted: list[int] = []
        self.files: list[TableFile] = []

    def read(self) -> None:
        while self._at < len(self._data):
            tag = self._number()
            if tag in (_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _MIN_LOG):
                self.numbers[tag] = self._number()
            elif tag in (_MAX_FAMILY, _GROUP):
                self._number()
            elif tag == _FAMILY:
                self.family = self._number()
            elif tag == _FAMILY_ADD:
                self.added = self._bytes().decode()
            elif tag == _FAMILY_DROP:
                self.dropped = True
            elif tag == _DELETED_FILE:
                self._number()
                self.deleted.append(self._number())
            elif tag == _NEW_FILE:
                self._file()
            elif tag == _COMPACT_CURSOR:
                self._number()
                self._bytes()
            elif tag == _COMPARATOR or tag & _IGNORABLE:
                self._bytes()
            else:
                raise IndexError(tag)

    def _file(self) -> None:
        level, number, size = self._number(), self._number(), self._number()
        smallest, largest = self._user_key(), self._user_key()
        first, last = self._number(), self._number()
        self.files.append(TableFile(0, level, number, size, smallest, largest, first, last))
        while self._number() != _FILE_FIELDS_END:
            self._bytes()

    def _user_key(self) -> bytes:
        """Of a key as RocksDB keeps it: a sequence number and a kind stand behind it."""
        found = self._bytes()
        if len(found) < 8:
            raise IndexError(len(found))
        return found[: len(found) - 8]

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _bytes(self) -> bytes:
        size = self._number()
        end = self._at + size
        if end > len(self._data):
            raise IndexError(end)
        found = self._data[self._at : end]
        self._at = end
        return found


def read_manifest(file: Path, *, verify: bool = False) -> Manifest:
    """Read a manifest up to its end, or to its first problem.

    Args:
        file: the manifest.
        verify: its checksums, too, which RocksDB does when it opens.

    Raises:
        OSError: it cannot be read.
    """
    data = file.read_bytes()
    manifest = Manifest(file.name)
    manifest.size = len(data)
    frames = Frames(data, 0 if verify else len(data))
    while frames.next():
        try:
            manifest.apply(frames.payload())
        except StorageCorrupt:
            manifest.problem = f"byte {frames.start}: an edit does not decode"
            return manifest
    if frames.problem:
        manifest.problem = f"byte {frames.at}: {frames.problem}"
    return manifest


def refuse_garbled(path: Path) -> None:
    """Look at the heads of a directory's list of tables, before RocksDB does.

    It reads on for ever where the kind of a record has become one that only reused logs have.

    Raises:
        StorageCorrupt: one is garbled.
    """
    file = current_manifest(path)
    if file is None:
        return
    data = file.read_bytes()
    frames = Frames(data, len(data))
    while frames.next():
        pass
    if frames.problem == BROKEN:
        raise StorageCorrupt(f"{file.name}: byte {frames.at}: {BROKEN}; it lists the tables")


def current_manifest(path: Path) -> Path | None:
    """The manifest that a directory's ``CURRENT`` names; None = it names none that is there."""
    try:
        name = (path / "CURRENT").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    file = path / name
    return file if name.startswith("MANIFEST-") and file.is_file() else None


def forget_files(file: Path, given_up: list[TableFile]) -> None:
    """Add to a manifest that files are gone; RocksDB opens without them."""
    data = b"".join(_edits(file.stat().st_size, given_up))
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)


def _edits(at: int, given_up: list[TableFile]) -> list[bytes]:
    frames: list[bytes] = []
    for table in given_up:
        edit = _varint(_DELETED_FILE) + _varint(table.level) + _varint(table.number)
        edit += _varint(_FAMILY) + _varint(table.family)
        frames.append(frame(edit, at))
        at += len(frames[-1])
    return frames


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
