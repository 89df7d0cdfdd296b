"""Reads a database where nothing may be written.

rocksdict 0.3.29 writes a file of its own into a directory whenever it opens it, for reading too.
Where the directory may not be written, it is given another one, with links to what RocksDB reads
by the directory's name; table files and the write-ahead log are found where they are.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, final

import rocksdict

_LINKED: Final = ("CURRENT", "IDENTITY", "MANIFEST-*", "OPTIONS-*")
_ATTEMPTS: Final = 5
_UNBOUNDED: Final = 1 << 62

T = TypeVar("T")


def needs_borrowing(path: Path) -> bool:
    """Whether a database is there, and may not be written."""
    return (path / "CURRENT").exists() and not os.access(path, os.W_OK)


@final
class Borrowed:
    """A directory that stands for one that may not be written.

    Args:
        path: of the database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._directory = tempfile.TemporaryDirectory(prefix="perdure-read-")

    def close(self) -> None:
        """Remove it."""
        self._directory.cleanup()

    def opened(self, options: rocksdict.Options, open_at: Callable[[Path], T]) -> T:
        """What ``open_at`` makes of the directory.

        Args:
            options: of the database, which are changed.
            open_at: opens; tried again if the broker began another manifest meanwhile.
        """
        options.set_db_paths([rocksdict.DBPath(str(self._path), _UNBOUNDED)])
        options.set_wal_dir(str(self._path))
        for attempt in range(1, _ATTEMPTS + 1):
            manifest = self._link()
            try:
                return open_at(Path(self._directory.name))
            except Exception:
                if attempt == _ATTEMPTS or (self._path / "CURRENT").read_bytes() == manifest:
                    raise
        raise AssertionError

    def _link(self) -> bytes:
        """Link what is there now; returns the content of ``CURRENT``."""
        home = Path(self._directory.name)
        for old in home.iterdir():
            old.unlink()
        manifest = (self._path / "CURRENT").read_bytes()
        for pattern in _LINKED:
            for file in self._path.glob(pattern):
                (home / file.name).symlink_to(file)
        return manifest
