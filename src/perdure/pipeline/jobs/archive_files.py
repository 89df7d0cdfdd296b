"""The files of an archive's round: what its tasks write, and files made again for wider columns.

A task writes a Parquet file for each table, and begins another one where payloads have fields that
the file's columns cannot take. What fields all tasks together found is known only afterwards: then
a file whose columns do not fit the table is made again from the payloads in it. Knows no table
format and no Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perdure.pipeline import fields
from perdure.pipeline.fields import Fields, Seen
from perdure.pipeline.lake.layouts import Layout
from perdure.pipeline.lake.partitions import parts
from perdure.pipeline.lake.stores import LOCAL, Store, below
from perdure.pipeline.payload_reader import PayloadReader
from perdure.pipeline.payload_rules import Rule
from perdure.pipeline.sinks.contract import DataFile
from perdure.pipeline.tables import TableSpec, reserved, split, table_schema

BATCH_ROWS: Final = 65_536
"""Rows that are made again at a time."""

FILES_OPEN_MAX: Final = 64
"""Partitions of a table that a task writes to at once; each holds a row group in memory."""

RESULT: Final = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("partition", pa.string()),
        ("fields", pa.string()),
        ("seen", pa.string()),
    ]
)
RESULT_DDL: Final = (
    "table string, path string, rows bigint, size bigint, first bigint, last bigint, "
    "partition string, fields string, seen string"
)


class WriteTask(msgspec.Struct, frozen=True):
    """What the tasks of a round have in common; travels to them.

    Attributes:
        specs: tables, the catch-all last.
        directories: where to write the files of each.
        positions: what each table holds already.
        known: the fields that each has columns for already.
        stores: how the files of each are reached.
        layouts: how the rows of each are divided among files.
        declared: columns that schemas declare for each.
        rules: of payloads.
    """

    specs: tuple[TableSpec, ...]
    directories: tuple[str, ...]
    positions: tuple[int, ...]
    known: tuple[Fields, ...]
    stores: tuple[Store, ...]
    layouts: tuple[Layout, ...]
    declared: tuple[Fields, ...]
    rules: tuple[Rule, ...] = ()


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
        TableWriter(
            spec,
            task.directories[number],
            task.known[number],
            store=task.stores[number],
            layout=task.layouts[number],
            declared=task.declared[number],
            rules=task.rules,
        )
        for number, spec in enumerate(task.specs)
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
            msgspec.convert({name: row[name] for name in DataFile.__struct_fields__}, DataFile),
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


def remade(
    path: str,
    spec: TableSpec,
    known: Fields,
    directory: str,
    *,
    store: Store = LOCAL,
    layout: Layout = Layout(),  # noqa: B008 - a frozen record
    rules: tuple[Rule, ...] = (),
    decodes: bool = True,
) -> list[DataFile]:
    """A file of a table made again with these columns for fields; the old one stays.

    Args:
        decodes: values come from the payloads, as rules are now; else those that the file has are
            kept: it may be from a time of other rules.
    """
    writer = TableWriter(
        spec,
        directory,
        known,
        store=store,
        layout=layout,
        rules=rules,
        grows=False,
        decodes=decodes,
    )
    with store.reading(path), pq.ParquetFile(store.opened(path)) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            writer.write(batch)
    return [written.file for written in writer.close()]


@final
class TableWriter:
    """Writes rows of one table to files of its own, one or more for each partition.

    Args:
        spec: the table.
        directory: where to.
        known: fields that have columns.
        store: how files there are reached.
        layout: how rows are divided.
        declared: columns of schemas.
        rules: of payloads.
        grows: more fields get columns; else the known ones are all.
        decodes: values of fields come from payloads; else from the columns of what is written.
    """

    def __init__(
        self,
        spec: TableSpec,
        directory: str,
        known: Fields,
        *,
        store: Store = LOCAL,
        layout: Layout = Layout(),  # noqa: B008 - a frozen record
        declared: Mapping[str, str] = fields.NONE,
        rules: tuple[Rule, ...] = (),
        grows: bool = True,
        decodes: bool = True,
    ) -> None:
        self._spec = spec
        self._reserved = reserved(spec)
        self._directory = directory
        self._fields = dict(known)
        self._store = store
        self._layout = layout
        self._grows = grows
        self._decodes = decodes
        self._declared = declared
        self._reader = PayloadReader(rules)
        # By partition, the one written to last at the end.
        self._files: dict[str, _File] = {}
        self._written: list[Written] = []

    def write(self, rows: Any) -> None:
        """Add the rows of a record batch that has the table's columns, those of fields or not."""
        if not rows.num_rows:
            return
        columns: fields.Columns = {}
        seen: Seen = {}
        if self._spec.has_fields and self._decodes:
            decoded, failed = self._reader.read(rows)
            columns = fields.look_at(decoded, self._reserved)
            if self._grows:
                seen = fields.count(columns)
                if failed:
                    seen[fields.UNDECODED] = {"payload": failed}
                grown = fields.grown(self._fields, seen, self._declared)
                if grown != self._fields:
                    self._end_files()
                    self._fields = grown
        plain = table_schema(self._spec)
        arrays = [rows.column(field.name).cast(field.type) for field in plain]
        if self._decodes:
            arrays += fields.arrays(columns, self._fields, rows.num_rows)
        else:
            arrays += fields.kept(rows, self._fields)
        schema = table_schema(self._spec, self._fields)
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for partition, own in parts(batch, self._layout):
            # What fields a batch has is told once, with its first file.
            self._file(partition, schema).write(own, seen, self._fields)
            seen = {}

    def _file(self, partition: str, schema: Any) -> _File:
        """The file of a partition; it is the one that was written to last."""
        file = self._files.pop(partition, None)
        if file is None:
            if len(self._files) >= FILES_OPEN_MAX:
                self._end(next(iter(self._files)))
            path = below(self._directory, f"{uuid.uuid4().hex}.parquet")
            file = _File(path, schema, self._store)
        self._files[partition] = file
        return file

    def close(self) -> list[Written]:
        """End the last files.

        Returns:
            All files, safe against power loss.
        """
        self._end_files()
        return self._written

    def _end_files(self) -> None:
        for partition in list(self._files):
            self._end(partition)

    def _end(self, partition: str) -> None:
        made = self._files.pop(partition)
        file = made.close(self._spec.name, partition)
        self._written.append(Written(file, self._fields, made.seen))


@final
class _File:
    """One Parquet file that is being written."""

    def __init__(self, path: str, schema: Any, store: Store) -> None:
        self._path = path
        self._store = store
        where, system = store.target(path)
        with store.errors(path):
            self._writer = pq.ParquetWriter(where, schema, filesystem=system, compression="zstd")
        self._rows = 0
        self._first = self._last = 0
        self.seen: Seen = {}

    def write(self, batch: Any, seen: Seen, known: Fields) -> None:
        with self._store.errors(self._path):
            self._writer.write_batch(batch)
        bounds = pc.min_max(batch.column("offset")).as_py()
        self._first = min(self._first, bounds["min"]) if self._rows else bounds["min"]
        self._last = max(self._last, bounds["max"])
        self._rows += batch.num_rows
        self.seen = fields.bounded(fields.add(self.seen, seen), known)

    def close(self, table: str, partition: str) -> DataFile:
        with self._store.errors(self._path):
            self._writer.close()
        size = self._store.finish(self._path)
        return DataFile(table, self._path, self._rows, size, self._first, self._last, partition)
