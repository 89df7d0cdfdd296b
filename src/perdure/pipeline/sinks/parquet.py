"""Tables as directories of Parquet files, without any service.

::

    messages/                            the table
      schema.json                        names and types of its columns, and whose log it holds
      .staging-<random>/                 files of a commit that was not made
      offsets-<after>-<until>/*.parquet  one commit: the rename of its directory
      replace.json                       commits that are being put into one

Readers take ``messages/offsets-*/*.parquet``. The position of a table is the highest ``until``.

A commit is one rename. Putting commits into one takes several: ``replace.json`` says which, and is
written first, so that whoever comes after a crash ends it. A reader that lists files meanwhile may
miss rows; there are formats for those who mind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import msgspec
import pyarrow.parquet as pq

from perdure.errors import ConfigError, StorageConflict
from perdure.files import AS_UMASK_SAYS, locked, replace_file, sync_directory
from perdure.pipeline.fields import ARROW, Fields
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.layouts import Layout
from perdure.pipeline.lake.stores import LOCAL, Store
from perdure.pipeline.sinks.contract import DataFile, Removed, check_position

_STAGING: Final = ".staging-"
_OLD: Final = ".old-"
_REPLACE: Final = "replace.json"
_SCHEMA: Final = "schema.json"
_COMMIT: Final = re.compile(r"offsets-(\d{20})-(\d{20})")


class _Description(msgspec.Struct):
    """``schema.json``."""

    database: str
    columns: list[tuple[str, str]]


class _Replacement(msgspec.Struct):
    """``replace.json``: directories that give way to one."""

    staging: str
    name: str
    old: list[str]
    columns: list[tuple[str, str]]


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
        with locked(directory / ".lock"):
            _recover(directory)
        columns = _columns(schema)
        if not (directory / _SCHEMA).exists():
            _write(directory / _SCHEMA, _Description(self._database_id, columns))
        found = _description(directory)
        if found.database != self._database_id:
            raise ConfigError(f"{directory} holds the log of another database", path="to")
        if found.columns[: len(columns)] != columns:
            raise ConfigError(
                f"{directory} has other columns", path="table", hint="give the table a new name"
            )

    def fields(self, table: str, plain: Any) -> Fields:
        names = {str(kind): name for name, kind in ARROW.items()}
        columns = _description(self._root / table).columns[len(plain.names) :]
        return {name: names[kind] for name, kind in columns if kind in names}

    def position(self, table: str) -> int:
        return max((until for _, until in _commits(self._root / table)), default=0)

    def data_directory(self, table: str) -> str:
        staging = self._staging.get(table)
        if staging is None:
            staging = self._staging[table] = self._stage(table)
        return str(staging)

    def store(self, _table: str) -> Store:
        return LOCAL

    def layout(self, _table: str) -> Layout:
        return Layout()

    def files(self, table: str) -> list[DataFile]:
        found = []
        for path in sorted((self._root / table).glob("offsets-*/*.parquet")):
            rows, first, last = _statistics(path)
            found.append(DataFile(table, str(path), rows, path.stat().st_size, first, last))
        return found

    def commit(
        self, table: str, files: Sequence[DataFile], *, schema: Any, expected: int, position: int
    ) -> None:
        staging = self._staging[table]
        # A task that ran twice, or failed, leaves files that nobody counted.
        counted = {Path(file.path).name for file in files}
        for path in staging.iterdir():
            if path.name not in counted:
                path.unlink()
        sync_directory(staging)
        directory = self._root / table
        with locked(directory / ".lock"):
            _recover(directory)
            check_position(table, self.position(table), expected)
            self._describe(directory, _columns(schema))
            staging.rename(directory / f"offsets-{expected:020}-{position:020}")
            sync_directory(directory)
        del self._staging[table]

    def replace(
        self,
        table: str,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        *,
        schema: Any,
        expected: int,
    ) -> None:
        directory = self._root / table
        staging = self._stage(table)
        for file in new:
            Path(file.path).rename(staging / Path(file.path).name)
        leaving = {Path(file.path) for file in old}
        names = sorted({path.parent.name for path in leaving})
        with locked(directory / ".lock"):
            _recover(directory)
            check_position(table, self.position(table), expected)
            if not all(path.exists() for path in leaving):
                raise StorageConflict(f"table {table}: its files were replaced meanwhile")
            # What shares a directory with them comes along.
            for name in names:
                for path in (directory / name).iterdir():
                    if path not in leaving:
                        os.link(path, staging / path.name)
            sync_directory(staging)
            spans = [found for name in names if (found := _COMMIT.fullmatch(name))]
            after, until = min(int(span[1]) for span in spans), max(int(span[2]) for span in spans)
            name = f"offsets-{after:020}-{until:020}"
            columns = _columns(schema)
            _write(directory / _REPLACE, _Replacement(staging.name, name, names, columns))
            _recover(directory)

    def clean(self, table: str, *, before_us: int) -> Removed:
        directory = self._root / table
        files = size = 0
        with locked(directory / ".lock"):
            _recover(directory)
            for path in sorted(directory.iterdir()):
                stat = path.stat()
                if not path.name.startswith((_STAGING, _OLD)):
                    continue
                if stat.st_mtime_ns // 1_000 >= before_us or path in self._staging.values():
                    continue
                for file in path.iterdir():
                    files, size = files + 1, size + file.stat().st_size
                shutil.rmtree(path)
        return Removed(0, files, size)

    def close(self) -> None:
        """Remove what was prepared for commits that are not made."""
        for staging in self._staging.values():
            shutil.rmtree(staging, ignore_errors=True)
        self._staging.clear()

    def _stage(self, table: str) -> Path:
        staging = self._root / table / f"{_STAGING}{uuid.uuid4().hex}"
        staging.mkdir()
        return staging

    def _describe(self, directory: Path, columns: list[tuple[str, str]]) -> None:
        found = _description(directory)
        if found.columns != columns:
            _write(directory / _SCHEMA, _Description(found.database, columns))


def _recover(directory: Path) -> None:
    """End a replacement that was begun; the directory is locked."""
    path = directory / _REPLACE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    found = msgspec.json.decode(data, type=_Replacement)
    staging = directory / found.staging
    # Once the new directory has its name, there may be an old one of the same name no more.
    if staging.exists():
        for name in found.old:
            with contextlib.suppress(FileNotFoundError):
                (directory / name).rename(directory / f"{_OLD}{staging.name}-{name}")
        sync_directory(directory)
        staging.rename(directory / found.name)
    description = _description(directory)
    _write(directory / _SCHEMA, _Description(description.database, found.columns))
    path.unlink()
    sync_directory(directory)
    for name in found.old:
        shutil.rmtree(directory / f"{_OLD}{staging.name}-{name}", ignore_errors=True)


def _commits(directory: Path) -> list[tuple[int, int]]:
    """The spans of offsets that were committed. A replacement that is under way counts as done."""
    names = [entry.name for entry in directory.iterdir()]
    with contextlib.suppress(FileNotFoundError):
        data = (directory / _REPLACE).read_bytes()
        names.append(msgspec.json.decode(data, type=_Replacement).name)
    matched = [found for name in names if (found := _COMMIT.fullmatch(name))]
    return [(int(found[1]), int(found[2])) for found in matched]


def _statistics(path: Path) -> tuple[int, int, int]:
    """Rows, lowest and highest offset of a file."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        chunks = [
            metadata.row_group(group).column(chunk).statistics
            for group in range(metadata.num_row_groups)
            for chunk in range(metadata.num_columns)
            if metadata.row_group(group).column(chunk).path_in_schema == "offset"
        ]
    first = min((chunk.min for chunk in chunks), default=0)
    last = max((chunk.max for chunk in chunks), default=0)
    return metadata.num_rows, first, last


def _columns(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in schema]


def _description(directory: Path) -> _Description:
    return msgspec.json.decode((directory / _SCHEMA).read_bytes(), type=_Description)


def _write(path: Path, value: Any) -> None:
    replace_file(path, msgspec.json.encode(value), mode=AS_UMASK_SAYS)


def open_sink(lake: Lake, database_id: str) -> ParquetSink:
    """The tables of an archive in a directory."""
    return ParquetSink(Path(lake.place), database_id)
