"""The files of an archive's round: what its tasks write, and files made again for wider columns.

A task writes a Parquet file for each table, and begins another one where payloads have fields that
the file's columns cannot take. What fields all tasks together found is known only afterwards: then
a file whose columns do not fit the table is made again from the payloads in it. Knows no table
format and no Spark.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perdure.pipeline import fields
from perdure.pipeline.fields import Fields, Seen
from perdure.pipeline.sinks.contract import DataFile
from perdure.pipeline.tables import TableSpec, reserved, split, table_schema

BATCH_ROWS: Final = 65_536
"""Rows that are made again at a time."""

RESULT: Final = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("fields", pa.string()),
        ("seen", pa.string()),
    ]
)
RESULT_DDL: Final = (
    "table string, path string, rows bigint, size bigint, first bigint, last bigint, "
    "fields string, seen string"
)


class WriteTask(msgspec.Struct, frozen=True):
    """What the tasks of a round have in common; travels to them.

    Attributes:
        specs: tables, the catch-all last.
        directories: where to write the files of each.
        positions: what each table holds already.
        known: the fields that each has columns for already.
    """

    specs: tuple[TableSpec, ...]
    directories: tuple[str, ...]
    positions: tuple[int, ...]
    known: tuple[Fields, ...]


class Written(msgspec.Struct, frozen=True):
    """A file, with what its task learned of the fields in it.

    Attributes:
        file: as a table takes it.
        fields: columns for fields that it has.
        seen: values of fields in its payloads.
    """

    file: DataFile
    fields: Fields
    seen: Seen


def write_batches(task: WriteTask, batches: Iterable[Any]) -> Iterator[Any]:
    """Write record batches to Parquet files for each table; gives one batch of ``RESULT``.

    The body of a Spark task: it may run twice, and files of a run that failed are never used.
    """
    writers = [
        TableWriter(spec, directory, known)
        for spec, directory, known in zip(task.specs, task.directories, task.known, strict=True)
    ]
    for batch in batches:
        for writer, part in zip(writers, split(batch, task.specs, task.positions), strict=True):
            writer.write(part)
    written = [each for writer in writers for each in writer.close()]
    yield pa.RecordBatch.from_pylist(list(map(_row, written)), schema=RESULT)


def written_files(rows: Sequence[Any]) -> list[Written]:
    """The files in rows of ``RESULT``."""
    return [
        Written(
            DataFile(
                row["table"], row["path"], row["rows"], row["size"], row["first"], row["last"]
            ),
            msgspec.json.decode(row["fields"], type=Fields),
            msgspec.json.decode(row["seen"], type=Seen),
        )
        for row in rows
    ]


def _row(written: Written) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(written.file),
        "fields": msgspec.json.encode(written.fields).decode(),
        "seen": msgspec.json.encode(written.seen).decode(),
    }


def remade(path: str, spec: TableSpec, known: Fields, directory: str) -> list[DataFile]:
    """A file of a table made again with these columns for fields; the old one stays."""
    writer = TableWriter(spec, directory, known, grows=False)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            writer.write(batch)
    return [written.file for written in writer.close()]


@final
class TableWriter:
    """Writes rows of one table to files of its own.

    Args:
        spec: the table.
        directory: where to.
        known: fields that have columns.
        grows: more fields get columns; else the known ones are all.
    """

    def __init__(
        self, spec: TableSpec, directory: str, known: Fields, *, grows: bool = True
    ) -> None:
        self._spec = spec
        self._reserved = reserved(spec)
        self._directory = Path(directory)
        self._fields = dict(known)
        self._grows = grows
        self._file: _File | None = None
        self._written: list[Written] = []

    def write(self, rows: Any) -> None:
        """Add the rows of a record batch that has the table's columns, those of fields or not."""
        if not rows.num_rows:
            return
        columns: dict[str, list[Any]] = {}
        seen: Seen = {}
        if self._spec.has_fields:
            columns = fields.look(rows.column("payload"), self._reserved)
            if self._grows:
                seen = fields.count(columns)
                grown = fields.grown(self._fields, seen)
                if grown != self._fields:
                    self._end_file()
                    self._fields = grown
        if self._file is None:
            path = self._directory / f"{uuid.uuid4().hex}.parquet"
            self._file = _File(path, table_schema(self._spec, self._fields))
        plain = table_schema(self._spec)
        arrays = [rows.column(field.name).cast(field.type) for field in plain]
        arrays += fields.arrays(columns, self._fields, rows.num_rows)
        self._file.write(arrays, seen)

    def close(self) -> list[Written]:
        """End the last file.

        Returns:
            All files, safe against power loss.
        """
        self._end_file()
        return self._written

    def _end_file(self) -> None:
        if self._file is not None:
            file = self._file.close(self._spec.name)
            self._written.append(Written(file, self._fields, self._file.seen))
            self._file = None


@final
class _File:
    """One Parquet file that is being written."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._path = path
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._rows = 0
        self._first = self._last = 0
        self.seen: Seen = {}

    def write(self, arrays: list[Any], seen: Seen) -> None:
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(batch)
        bounds = pc.min_max(batch.column("offset")).as_py()
        self._first = min(self._first, bounds["min"]) if self._rows else bounds["min"]
        self._last = max(self._last, bounds["max"])
        self._rows += batch.num_rows
        self.seen = fields.add(self.seen, seen)

    def close(self, table: str) -> DataFile:
        self._writer.close()
        _sync(self._path)
        size = self._path.stat().st_size
        return DataFile(table, str(self._path), self._rows, size, self._first, self._last)


def _sync(path: Path) -> None:
    """Make a file safe against power loss: its commit must not outlive it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
