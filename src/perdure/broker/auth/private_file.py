"""Replaces a file that nobody but its owner may read, as a whole.

It must not know what is in the file.

Invariant: on disk there is either the old file or the new one, never a part of one, also if the
power goes.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes, *, owner: os.stat_result | None = None) -> os.stat_result:
    """Write a file and put it in the place of the one at ``path``, if there is one.

    Args:
        path: the file; a link is replaced, not followed.
        data: all of its content.
        owner: whose it shall be, where we may set that; None = ours.

    Returns:
        What identifies the new file.

    Raises:
        OSError: it cannot be written; the old file stands.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            written = os.fstat(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)
    return written


def _sync_directory(directory: Path) -> None:
    """Make a rename durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
