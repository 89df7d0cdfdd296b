"""Files that survive a power cut, and locks that end with their process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o600
AS_UMASK_SAYS: Final = 0o666


def replace_file(
    path: Path, data: bytes, *, mode: int = OWNER_ONLY, owner: os.stat_result | None = None
) -> os.stat_result:
    """Write a file and put it in the place of the one at ``path``, if there is one.

    Args:
        path: the file; a link is replaced, not followed.
        data: all of its content.
        mode: who may read and write it.
        owner: whose it shall be, where we may set that; None = ours.

    Returns:
        What identifies the new file, which is safe against power loss.

    Raises:
        OSError: it cannot be written; the old file stands, and nothing is left beside it.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            written = os.fstat(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
    return written


def sync_file(path: Path) -> None:
    """Make what someone has written to a file survive a power cut; not its name.

    Raises:
        OSError: there is none, or the disk has failed.
    """
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut.

    Raises:
        OSError: it is none, or the disk has failed.
    """
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def try_lock(path: Path) -> int | None:
    """Lock a file, which is made if there is none, until the descriptor is closed.

    Returns:
        The descriptor; None = another process has the lock.

    Raises:
        OSError: the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if there is none; wait for it first.

    Raises:
        OSError: the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
