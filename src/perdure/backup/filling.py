"""Fills an empty data directory, so that a broker starts in it only when all of it is there.

Everything is put together in ``<data>/perdure.restoring/``, on the same file system, and moved up
at the end. While that directory is there no broker starts (``storage.rocksdb.survey``), and a
restore begins anew. So a process may be killed between any two steps.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, final

from perdure.backup.manifest import BackupFile, BackupManifest
from perdure.backup.taking import SPARE_BYTES
from perdure.config.schema import RocksdbConfig
from perdure.config.units import format_size
from perdure.errors import (
    ConfigError,
    PerdureError,
    StorageCorrupt,
    StorageFull,
    StorageLocked,
)
from perdure.files import sync_directory
from perdure.storage.rocksdb.directory import LOCK_NAME, RESTORING_NAME, DirectoryLock
from perdure.storage.rocksdb.inspection import inspect
from perdure.storage.rocksdb.store import RocksDatabase
from perdure.storage.rocksdb.synced import unusable

_IGNORED: Final = frozenset({LOCK_NAME, RESTORING_NAME, "lost+found"})
_FINDINGS_SHOWN: Final = 5


@final
class Filling:
    """A data directory that is being filled.

    Attributes:
        data: the directory.
        path: where everything goes until the end.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self.path = data / RESTORING_NAME

    def check_room(self, size: int) -> None:
        """Whether so many bytes fit.

        Raises:
            StorageFull: they do not.
        """
        space = os.statvfs(self.data)
        free = space.f_bavail * space.f_frsize
        if size + SPARE_BYTES > free:
            raise StorageFull(
                f"no space left for {self.data}: it needs {format_size(size)}, and "
                f"{format_size(free)} are free"
            )

    def write(self, name: str, pieces: Iterable[bytes]) -> tuple[int, str]:
        """Write one file, durably; returns its size and SHA-256."""
        digest, size = hashlib.sha256(), 0
        target = self.path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as writing:
                for data in pieces:
                    digest.update(data)
                    size += len(data)
                    writing.write(data)
                writing.flush()
                os.fsync(writing.fileno())
        except OSError as error:
            raise unusable(self.data, error) from error
        return size, digest.hexdigest()

    def write_checked(self, file: BackupFile, pieces: Iterable[bytes]) -> None:
        """Write a file of a backup.

        Raises:
            StorageCorrupt: its contents are not those that they should be.
        """
        size, sha256 = self.write(file.name, pieces)
        if (size, sha256) != (file.size, file.sha256):
            raise StorageCorrupt(
                f"{file.name} is damaged: it has {size} bytes and another checksum than the "
                "backup says",
                hint="perdure backup verify shows what else is; restore another one with --backup",
            )

    def check(self, config: RocksdbConfig) -> None:
        """Verify every file and record, as ``perdure storage check``.

        Raises:
            StorageCorrupt: something is wrong.
        """
        found = [
            f"{each.table} {each.key}: {each.problem}".strip()
            for each in inspect(self.path, config)
        ]
        if found:
            more = f" (and {len(found) - _FINDINGS_SHOWN} more)"
            shown = "; ".join(found[:_FINDINGS_SHOWN])
            raise StorageCorrupt(
                f"what was restored does not hold: {shown}"
                + (more if len(found) > _FINDINGS_SHOWN else ""),
                hint="restore another backup with --backup; perdure backup list shows them",
            )

    def check_opens(self, config: RocksdbConfig, manifest: BackupManifest) -> None:
        """Verify that a database is there, and the one that was described. Costs no row a look.

        Raises:
            StorageError: it is not.
        """
        database = RocksDatabase.open(self.path, config=config, read_only=True)
        try:
            marks = database.marks
            found = (marks.last_offset, marks.session_count, marks.retained_count)
            wanted = (manifest.position, manifest.sessions, manifest.retained)
            count = sum(each.message_count for each in database.generations())
        finally:
            database.close()
        if (*found, count) != (*wanted, manifest.messages):
            raise StorageCorrupt(
                "what came is not the database that was described", hint="fetch it again"
            )

    def finish(self) -> None:
        """Move everything up: from now on it is a data directory."""
        try:
            for directory, _, _ in os.walk(self.path):
                sync_directory(Path(directory))
            for file in sorted(self.path.iterdir()):
                if file.name != LOCK_NAME:
                    file.rename(self.data / file.name)
            (self.path / LOCK_NAME).unlink(missing_ok=True)
            sync_directory(self.data)
            self.path.rmdir()
            sync_directory(self.data)
        except OSError as error:
            raise unusable(self.data, error) from error


@contextlib.contextmanager
def filling(data: Path, begun: Callable[[], None] = lambda: None) -> Iterator[Filling]:
    """Begin to fill a directory, which nobody else can use meanwhile.

    Args:
        data: made if it is not there; else empty, or what an unfinished restore has left.
        begun: called when it is known to be empty.

    Raises:
        ConfigError: it is not empty.
        StorageLocked: somebody uses it.
    """
    if data.is_dir() and not (data / RESTORING_NAME).exists():
        _refuse_others(data)
    lock = DirectoryLock(data)
    try:
        target = Filling(data)
        if not target.path.exists():
            _refuse_others(data)
        try:
            target.path.mkdir(mode=0o700, exist_ok=True)
            sync_directory(data)
            for directory in (data, target.path):
                _empty(directory)
        except OSError as error:
            raise unusable(data, error) from error
        begun()
        yield target
    finally:
        lock.release()


def is_empty(data: Path) -> bool:
    """Whether a directory is not there, or has nothing in it that anybody would miss."""
    return not data.is_dir() or not (_others(data) or (data / RESTORING_NAME).exists())


@contextlib.contextmanager
def removed_if_refused(data: Path) -> Iterator[None]:
    """Make an empty directory empty again if what began to use it is refused.

    Args:
        data: empty until now; closed when an exception comes out.
    """
    try:
        yield
    except StorageLocked:
        raise  # what is there by now is another process's
    except PerdureError:
        # Another process that has begun there meanwhile keeps what it has.
        with contextlib.suppress(OSError, PerdureError):
            lock = DirectoryLock(data)
            try:
                _empty(data)
            finally:
                lock.release()
        raise


def _others(data: Path) -> list[str]:
    return sorted(each.name for each in data.iterdir() if each.name not in _IGNORED)


def _refuse_others(data: Path) -> None:
    others = _others(data)
    if others:
        raise ConfigError(
            f"{data} is not empty: {others[0]} is in it",
            path="--data",
            hint="restore into an empty directory; move away what is there",
        )


def _empty(directory: Path) -> None:
    for each in directory.iterdir():
        if each.name in _IGNORED:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
