"""Tables as directories of Parquet files, without any service.

::

    messages/                            the table
      schema.json                        names and types of its columns, and whose log it holds
      .staging-<random>/                 files of a commit that was not made
      offsets-<after>-<until>/*.parquet  one commit: the rename of its directory

Readers take ``messages/offsets-*/*.parquet``. The position of a table is the highest ``until``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.errors import ConfigError
from perdure.pipeline.sinks.contract import DataFile, check_position

_STAGING: Final = ".staging-"
_COMMIT: Final = re.compile(r"offsets-(\d{20})-(\d{20})")


@final
class ParquetSink:
    """Directories below one directory.

    Args:
        root: the archive.
        database_id: whose log it holds.
    """

    def __init__(self, root: Path, database_id: str) -> None:
        self._root = root
        self._database_id = database_id
        self._staging: dict[str, Path] = {}

    def begin(self, table: str, schema: Any) -> None:
        directory = self._root / table
        directory.mkdir(parents=True, exist_ok=True)
        wanted = {
            "database": self._database_id,
            "columns": [[field.name, str(field.type)] for field in schema],
        }
        path = directory / "schema.json"
        if not path.exists():
            partial = path.with_suffix(f".{uuid.uuid4().hex}")
            partial.write_bytes(msgspec.json.encode(wanted))
            partial.replace(path)
        found = msgspec.json.decode(path.read_bytes())
        if found["database"] != self._database_id:
            raise ConfigError(f"{directory} holds the log of another database", path="to")
        if found["columns"] != wanted["columns"]:
            raise ConfigError(
                f"{directory} has other columns", path="table", hint="give the table a new name"
            )

    def position(self, table: str) -> int:
        names = [entry.name for entry in (self._root / table).iterdir()]
        return max(
            (int(found[2]) for name in names if (found := _COMMIT.fullmatch(name))), default=0
        )

    def data_directory(self, table: str) -> str:
        staging = self._staging.get(table)
        if staging is None:
            staging = self._root / table / f"{_STAGING}{uuid.uuid4().hex}"
            staging.mkdir()
            self._staging[table] = staging
        return str(staging)

    def commit(
        self, table: str, files: Sequence[DataFile], *, expected: int, position: int
    ) -> None:
        staging = self._staging.pop(table)
        # A task that ran twice, or failed, leaves files that nobody counted.
        counted = {Path(file.path).name for file in files}
        for path in staging.iterdir():
            if path.name not in counted:
                path.unlink()
        _sync(staging)
        directory = self._root / table
        with _locked(directory / ".lock"):
            check_position(table, self.position(table), expected)
            staging.rename(directory / f"offsets-{expected:020}-{position:020}")
            _sync(directory)

    def close(self) -> None:
        """Remove what was prepared for commits that are not made."""
        for staging in self._staging.values():
            shutil.rmtree(staging, ignore_errors=True)
        self._staging.clear()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync(directory: Path) -> None:
    """Make the names in a directory safe against power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
