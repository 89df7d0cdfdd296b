"""The data directory: one owner at a time, and whether it can take writes.

Invariant: while ``DirectoryLock`` is held, no other process has the directory open for writing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final, final

from perdure.errors import ConfigError, StorageFull, StorageLocked, StorageUnavailable
from perdure.files import sync_directory, try_lock

LOCK_NAME: Final = "perdure.lock"
RESTORING_NAME: Final = "perdure.restoring"
"""A directory below the data directory, while a restore is not finished: it is no database yet."""
LOCKS: Final = Path("/proc/locks")
"""The system's list of locks, which everybody may read."""

_PROBE_NAME: Final = "perdure.probe"
_PROBE_BYTES: Final = 1024 * 1024

_LASTING: Final = frozenset(
    (
        errno.EACCES,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    )
)
"""What does not pass by waiting: a supervisor must not start the broker over and over for it."""


@final
class DirectoryLock:
    """A lock on a directory, which names the process that holds it.

    Args:
        path: the directory; made if it is not there.

    Raises:
        StorageLocked: another process, or this one, has it open.
        ConfigError: there is no such directory, or none for this user.
        StorageUnavailable: it cannot be used now.
    """

    def __init__(self, path: Path) -> None:
        try:
            _make(path)
            file = try_lock(path / LOCK_NAME)
        except OSError as error:
            text = f"{path} cannot be used: {error.strerror}"
            if error.errno in _LASTING:
                raise ConfigError(
                    text, path="storage.path", hint="name a directory that the broker may write"
                ) from error
            raise StorageUnavailable(text) from error
        if file is None:
            pid = (path / LOCK_NAME).read_bytes()[:20].decode("ascii", "replace").strip()
            owner = f"process {pid}" if pid else "another process"
            raise StorageLocked(
                f"{path} is in use by {owner}",
                hint="stop that broker, or give this one another data directory",
            )
        self._file = file
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)
        except OSError:
            # A full disk: the name of the owner is a courtesy, the lock holds without it.
            return

    def release(self) -> None:
        """Give the directory to others."""
        os.close(self._file)


def is_owned(path: Path) -> bool:
    """Whether a process has the lock of a directory, as far as its reader can tell.

    The lock itself is not touched: whoever tries it keeps a broker that starts just then from it,
    and its file is the owner's alone. A process in another container is not seen, and where the
    system tells nothing there is taken to be one.
    """
    try:
        inode = str((path / LOCK_NAME).stat().st_ino)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return True
    # "2: FLOCK  ADVISORY  WRITE 1663 fe:00:10616969 0 EOF"; what waits for a lock has an arrow.
    fields = [line.split() for line in lines]
    return any(
        each[1:4:2] == ["FLOCK", "WRITE"] and each[5].rpartition(":")[2] == inode for each in fields
    )


def _make(path: Path) -> None:
    """Make a directory that is not there; its name, and those above it, survive a power cut."""
    missing = [step for step in (path, *path.parents) if not step.exists()]
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for step in missing:
        sync_directory(step.parent)


def manifest_stamp(path: Path) -> tuple[str, int]:
    """What changes whenever table files come or go: the current manifest and its size.

    RocksDB makes that known in the manifest before it deletes the write-ahead log of what it has
    flushed, or a file that it has compacted.
    """
    try:
        name = (path / "CURRENT").read_text(encoding="ascii").strip()
        return name, (path / name).stat().st_size
    except (OSError, ValueError):  # it is not there, or damaged: its bytes name no file
        return "", 0


def log_bytes(path: Path) -> int:
    """Bytes of the write-ahead logs, which opening the database writes to table files.

    Raises:
        OSError: they cannot be looked at.
    """
    total = 0
    for log in path.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # RocksDB has just deleted it
            total += log.stat().st_size
    return total


def probe(path: Path) -> None:
    """Prove that the directory takes, and keeps, as much as opening the database may write.

    Raises:
        StorageFull, StorageUnavailable: it does not.
    """
    try:
        size = _PROBE_BYTES + log_bytes(path)
        file = os.open(path / _PROBE_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            block = b"\0" * _PROBE_BYTES
            for _ in range(size // _PROBE_BYTES + 1):
                if os.write(file, block) != len(block):
                    raise StorageFull(f"{path} has no space left")
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise StorageUnavailable(f"{path} takes no writes: {error.strerror}") from error
    finally:
        (path / _PROBE_NAME).unlink(missing_ok=True)
