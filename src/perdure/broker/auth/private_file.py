"""A file that nobody but its owner may read, and that is read and replaced as a whole.

It must not know what is in the file.

Invariant: on disk there is either the old file or the new one, never a part of one, also if the
power goes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from perdure.errors import ConfigError
from perdure.files import replace_file

Identity: TypeAlias = tuple[int, int, int]
"""Which state of a file something is."""


def read_file(path: Path, *, name: str, bytes_max: int) -> tuple[bytes, Identity]:
    """All of a file, and which state of it that is.

    Args:
        path: the file.
        name: what it is called in an error.
        bytes_max: larger ones are refused.

    Raises:
        FileNotFoundError: there is none.
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            identity = _identify(os.fstat(file.fileno()))
            data = file.read(bytes_max + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot read {name} {path}: {error.strerror}") from error
    if len(data) > bytes_max:
        raise ConfigError(f"{path} is larger than {bytes_max} bytes")
    return data, identity


def state_of(path: Path) -> Identity | None:
    """Which state of a file is there now; None = there is none.

    Raises:
        ConfigError: nobody can tell.
    """
    try:
        return _identify(path.stat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def save_file(path: Path, data: bytes, *, read: Identity | None) -> Identity:
    """Replace a file that was read before, unless someone else has changed it since.

    An existing file's owner is kept where we may set it, so that root can edit the file of a
    broker that runs as another user.

    Args:
        path: the file; a link stays a link.
        data: all of its content.
        read: which state of it was read; None = there was none.

    Raises:
        ConfigError: it cannot be written, or was changed.
    """
    try:
        target = path.resolve()
        before = target.stat() if target.exists() else None
        if (_identify(before) if before else None) != read:
            raise ConfigError(f"{path} was changed by someone else meanwhile", hint="try again")
        return _identify(replace_file(target, data, owner=before))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _identify(stat: os.stat_result) -> Identity:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
