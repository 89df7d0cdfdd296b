"""A checkpoint of a data directory while it is copied from: below the directory, and gone after.

::

    <data>/checkpoints/<name>/          links to table files, copies of the rest
    <data>/checkpoints/<name>.lock      locked by the process that needs it

Whoever makes one deletes those whose process is dead. Beside the database a checkpoint has the
small files of the data directory: all but those of RocksDB and those that belong to the process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageFull, StorageUnavailable
from perdure.files import try_lock
from perdure.storage.rocksdb.checkpoint import checkpoint_files, link_checkpoint
from perdure.storage.rocksdb.store import RocksDatabase
from perdure.storage.rocksdb.synced import unusable

STAGING: Final = "checkpoints"

SIDE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all files beside the database: bans, users, cursors of pipelines and the like are far less."""

_NOT_KEPT: Final = (
    "*.sst", "*.log", "LOG", "LOG.old.*", "LOCK", "CURRENT", "IDENTITY", "MANIFEST-*", "OPTIONS-*",
    "rocksdict-config.json", "admin.sock", "perdure.lock", "perdure.probe", "perdure.synced",
    "*-wal", "*-shm", "*-journal", "*.tmp", STAGING, "damaged-*", "perdure.restoring", "lost+found",
)  # fmt: skip
"""At the top of a data directory: RocksDB's files, and what belongs to a process."""


_SQLITE: Final = b"SQLite format 3\0"


class Staged(NamedTuple):
    """One file of a checkpoint: its name below the data directory, and where it is now."""

    name: str
    path: Path


class Checkpoint(msgspec.Struct, frozen=True):
    """A data directory as it was at one moment.

    Attributes:
        files: all of them.
        database_id, database_format: of the database.
        position: last offset that it had given.
        sessions, retained, messages: counts.
    """

    files: tuple[Staged, ...]
    database_id: str
    database_format: int
    position: int
    sessions: int
    retained: int
    messages: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.path.stat().st_size for file in self.files)


@contextlib.contextmanager
def staged_checkpoint(data: Path, config: RocksdbConfig) -> Iterator[Checkpoint]:
    """Make a checkpoint beside a broker or a stopped one's, and delete it at the end.

    Raises:
        StorageError: there is no database, it is damaged, or the disk does not let us.
    """
    with linked_checkpoint(data) as staging:
        files = [Staged(file.name, file) for file in checkpoint_files(staging)]
        files += _side_files(data, staging / "side")
        yield _described(staging, config, tuple(files))


@contextlib.contextmanager
def linked_checkpoint(data: Path) -> Iterator[Path]:
    """Make a checkpoint of the database alone, and delete it at the end.

    Raises:
        StorageError: there is no database, or the disk does not let us.
    """
    if not (data / "CURRENT").exists():
        raise StorageUnavailable(f"{data} holds no database")
    try:
        (data / STAGING).mkdir(mode=0o700, exist_ok=True)
        sweep_checkpoints(data)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        lock = _lock(data / STAGING / f"{name}.lock")
        assert lock is not None
    except OSError as error:
        raise unusable(data, error) from error
    staging = data / STAGING / name
    try:
        link_checkpoint(data, staging)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        (data / STAGING / f"{name}.lock").unlink(missing_ok=True)
        os.close(lock)
        with contextlib.suppress(OSError):
            (data / STAGING).rmdir()


def sweep_checkpoints(data: Path) -> int:
    """Delete checkpoints whose process is dead; returns how many."""
    count = 0
    with contextlib.suppress(FileNotFoundError):
        for lock_path in (data / STAGING).glob("*.lock"):
            lock = _lock(lock_path)
            if lock is None:
                continue
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)
            os.close(lock)
            count += 1
    return count


def _lock(path: Path) -> int | None:
    """Lock a file that is there under its name; None = another process has it."""
    while True:
        file = try_lock(path)
        if file is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file).st_ino == path.stat().st_ino:
                return file
        # Whoever sweeps has deleted it between the two.
        os.close(file)


def _side_files(data: Path, to: Path) -> Iterator[Staged]:
    """Copies of everything else that the broker keeps in the directory."""
    left = SIDE_BYTES_MAX
    for top in sorted(data.iterdir()):
        if any(fnmatch(top.name, pattern) for pattern in _NOT_KEPT):
            continue
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_symlink() or not file.is_file():
                continue
            name = file.relative_to(data).as_posix()
            try:
                left -= file.stat().st_size
                if left < 0:
                    raise StorageFull(
                        f"{data}: the files beside the database have more than "
                        f"{SIDE_BYTES_MAX} bytes; {name} is one",
                        hint="move away what is not the broker's",
                    )
                copy = to / name
                copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _copy(file, copy)
            except FileNotFoundError:
                continue  # it was replaced, or has ended, meanwhile
            except OSError as error:
                raise unusable(data, error) from error
            except sqlite3.Error as error:
                raise StorageUnavailable(f"{file} cannot be copied: {error}") from error
            yield Staged(name, copy)


def _copy(file: Path, copy: Path) -> None:
    """Copy a file; one of SQLite as of one transaction, since its owner may be writing it."""
    with file.open("rb") as reading:
        is_sqlite = reading.read(len(_SQLITE)) == _SQLITE
    if not is_sqlite:
        shutil.copy2(file, copy)
        return
    copy.touch(mode=0o600)
    uri = f"{file.resolve().as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(uri, uri=True)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)


def _described(staging: Path, config: RocksdbConfig, files: tuple[Staged, ...]) -> Checkpoint:
    database = RocksDatabase.open(staging, config=config, read_only=True)
    try:
        marks = database.marks
        return Checkpoint(
            files=files,
            database_id=database.format.database_id,
            database_format=database.format.version,
            position=marks.last_offset,
            sessions=marks.session_count,
            retained=marks.retained_count,
            messages=sum(each.message_count for each in database.generations()),
        )
    finally:
        database.close()
