"""What lies beside the database in a data directory, and whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.broker.auth.key_file import KEY_FILE, wrong_size
from perdure.forwarders.origin import ORIGIN_FILE
from perdure.identity.file import FILE_NAME as IDENTITY_FILE
from perdure.identity.file import damage_of
from perdure.storage.contract import Finding
from perdure.storage.rocksdb.directory import DirectoryLock

_BESIDE: Final = ("", "-wal", "-shm")
"""Endings of the files that SQLite has."""


def damaged_files(directory: Path) -> Iterator[Finding]:
    """Files that a broker would refuse to start with; beside one, too."""
    for name in (KEY_FILE, ORIGIN_FILE):
        path = directory / name
        problem = wrong_size(path.stat().st_size) if path.exists() else ""
        if problem:
            yield Finding(name, "", problem)
    problem = damage_of(directory)
    if problem:
        yield Finding(IDENTITY_FILE, "", f"it cannot be read ({problem}): users, keys and logins")


def put_aside(directory: Path, names: list[str], aside: Path) -> None:
    """Move damaged files away; the next start makes new ones.

    Raises:
        StorageLocked: a broker runs there.
    """
    lock = DirectoryLock(directory)
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        for name in names:
            for ending in _BESIDE:
                path = directory / f"{name}{ending}"
                if path.exists():
                    path.replace(aside / path.name)
    finally:
        lock.release()
