"""The start of a database that will be written to: looked at first, opened strictly, watched after.

``Watched`` is an engine and the file that says how far it was synced. RocksDB itself is told to
refuse whatever it cannot read in a log, so nothing is dropped that was not cut off here before, at
the end that a power cut has left (``survey``).

Invariant: opening changes no file of a directory that is damaged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final, final

from perdure.errors import StorageCorrupt, StorageError
from perdure.files import sync_directory
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import META, Engine
from perdure.storage.rocksdb.manifest import current_manifest, read_manifest
from perdure.storage.rocksdb.status import REPAIR_HINT
from perdure.storage.rocksdb.survey import Survey, Torn, survey
from perdure.storage.rocksdb.synced import Files, SyncedFile, unusable

LOOK_S: Final = 0.25
"""Between two looks at what files there are."""

_ROWS_SHARE: Final = 1 / 500
"""Of all time, for looking at the rows without which no other can be read."""

_TOPICS_MAX: Final = 4_000
"""Rows of topics that are kept beside; of more, none: to read them all would take too long."""


@final
class Watched:
    """An open engine, and the record of how far it was synced.

    Attributes:
        engine: the engine.
        is_new: there was no database before.
        torn: what a power cut had left at the end of the logs, and was cut off.
        has_record: how far the database had been synced was known.
    """

    __slots__ = (
        "_files",
        "_known",
        "_logs",
        "_look_at",
        "_manifest",
        "_rows_at",
        "_stamp",
        "_synced",
        "engine",
        "has_record",
        "is_new",
        "torn",
    )

    def __init__(self, engine: Engine, synced: SyncedFile, found: Survey) -> None:
        self.engine = engine
        self.is_new = found.is_new
        self.torn = found.torn
        self.has_record = found.is_new or found.said.claim is not None
        self._synced = synced
        self._look_at = 0.0
        self._rows_at = 0.0
        self._stamp = 0
        self._known: list[str] = []
        self._manifest = ("", 0)
        self._logs: dict[int, int] = {}
        self._files = Files()

    def sync(self) -> None:
        """Sync the engine, and note how far it has got."""
        now = time.monotonic()
        is_due = now >= self._look_at
        if is_due:
            self._look_at = now + LOOK_S
            files = self._look()
        engine = self.engine
        sequence = engine.sequence()
        engine.sync()
        self._synced.reached(sequence)
        if is_due and files != self._files:
            self._files = files
            self._synced.note_files(files)

    def close(self) -> None:
        """Sync and close."""
        self._look_at = self._rows_at = 0.0
        try:
            try:
                self.sync()
            finally:
                self.engine.close()
            self._stamp = 0
            self._look()  # the manifest as it stays
            self._synced.note_files(self._look())
            self._synced.close(sync=True)
        except BaseException:
            self._synced.close(sync=False)
            raise

    def abandon(self) -> None:
        """Close an engine that failed; what was said stays."""
        self.engine.abandon()
        self._synced.close(sync=False)

    def _look(self) -> Files:
        """What files there are. A log's length is for the sync that follows; the manifest's is that
        of the look before, which RocksDB has synced by now. So a log that was there at that look is
        told of, too: what made it superfluous may be in the manifest's part that is not told of,
        and a manifest that has lost that would need it."""
        path = self._synced.path
        try:
            stamp = path.stat().st_mtime_ns
            if stamp != self._stamp:
                self._known = [file.name for file in path.glob("*.log") if file.stem.isdecimal()]
                self._stamp = stamp
            present = {int(n[:-4]): (path / n).stat().st_size for n in self._known}
            logs = tuple(sorted((self._logs | present).items()))
            self._logs = present
            before, self._manifest = self._manifest, _manifest(path)
        except OSError:
            # A file came or went meanwhile.
            self._stamp = 0
            return self._files
        tables = self._files.tables
        if set(tables.values()) != self.engine.tables and self.engine.tables:
            tables = _tables(path) or tables
        if before[0] != self._manifest[0]:
            before = (self._manifest[0], 0)
        rows = self._rows() if self.engine.tables else self._files.rows
        return Files(logs, *before, tables, rows)

    def _rows(self) -> dict[bytes, bytes]:
        now = time.monotonic()
        if now < self._rows_at:
            return self._files.rows
        try:
            rows = dict(self.engine.items(META, *keys.IDENTITY))
            topics = dict(islice(self.engine.items(META, *keys.TOPICS), _TOPICS_MAX + 1))
        except StorageError:
            return self._files.rows
        end = time.monotonic()
        self._rows_at = end + (end - now) / _ROWS_SHARE
        return rows | topics if len(topics) <= _TOPICS_MAX else rows


def open_watched(path: Path, open_engine: Callable[[], Engine]) -> Watched:
    """Open a directory for writing, or make a database in it.

    Args:
        path: the data directory; nobody else has it open.
        open_engine: opens RocksDB there.

    Raises:
        StorageCorrupt: something is damaged or missing; nothing was changed.
        StorageFull, StorageUnavailable: the disk does not let us.
    """
    try:
        found = survey(path)
        if found.is_new:
            # Before the first file of RocksDB: without it those would be a database that lost all.
            return _watch_new(found, open_engine)
        _settle(found)
        try:
            engine = open_engine()
        except StorageCorrupt as error:
            found = survey(path, verify=True)
            if not found.damages and found.torn is None:
                raise StorageCorrupt(
                    f"{path} is damaged: {error.message}", hint=REPAIR_HINT
                ) from error
            _settle(found)
            engine = open_engine()
    except OSError as error:
        raise unusable(path, error) from error
    try:
        synced = SyncedFile(path)
        synced.begin(engine.sequence())
    except BaseException:
        engine.abandon()
        raise
    return Watched(engine, synced, found)


def _watch_new(found: Survey, open_engine: Callable[[], Engine]) -> Watched:
    synced = SyncedFile(found.path)
    try:
        return Watched(open_engine(), synced, found)
    except BaseException:
        synced.close(sync=False)
        raise


def _settle(found: Survey) -> None:
    """Refuse what is damaged; cut off what a power cut has torn."""
    if found.damages:
        raise found.error()
    torn = found.torn
    if torn is not None:
        cut_off(found.path, torn)


def cut_off(path: Path, torn: Torn) -> None:
    """Leave of the logs what is whole."""
    handle = os.open(path / torn.file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(handle, torn.keep_bytes)
        os.fsync(handle)
    finally:
        os.close(handle)
    for name in torn.later:
        (path / name).unlink()
    if torn.later:
        sync_directory(path)


def _manifest(path: Path) -> tuple[str, int]:
    file = current_manifest(path)
    return ("", 0) if file is None else (file.name, file.stat().st_size)


def _tables(path: Path) -> dict[int, str]:
    file = current_manifest(path)
    return {} if file is None else read_manifest(file).tables
