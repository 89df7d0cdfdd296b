"""Keeps the tables of an archive fit to be read: few files, no states that nobody asks for.

Small files are put together into larger ones, a group at a time, each in a commit of its own that
leaves the rows and the table's position as they are; then earlier states of the table are forgotten
and files that nothing needs are deleted. An archive may run meanwhile. Knows no Spark.

Invariant: a crash at any point leaves the same rows in the table and the same position; files that
were left over are deleted by a later run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perdure.errors import StorageConflict
from perdure.pipeline.jobs.archive_files import BATCH_ROWS
from perdure.pipeline.lake.layouts import Layout
from perdure.pipeline.lake.partitions import parts
from perdure.pipeline.lake.stores import LOCAL, Store, below
from perdure.pipeline.sinks.contract import DataFile, Sink
from perdure.pipeline.tables import TableSpec, table_schema

FILE_BYTES: Final = 128 * 1024 * 1024
"""What files are put together to; large enough to be read at full speed."""

SORT_BYTES: Final = 512 * 1024 * 1024
"""Rows that are sorted at a time, in memory."""

ATTEMPTS: Final = 5
"""A group is tried again when an archive came between."""


class Maintained(msgspec.Struct, frozen=True):
    """What was done to a table.

    Attributes:
        table: its name.
        files_before, files_after: files of data that it has.
        bytes_before, bytes_after: in them.
        rows: unchanged.
        snapshots_removed: earlier states that were forgotten.
        files_removed, bytes_removed: deleted from the disk.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    snapshots_removed: int
    files_removed: int
    bytes_removed: int


def maintain(
    sink: Sink,
    spec: TableSpec,
    *,
    before_us: int,
    file_bytes: int = FILE_BYTES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Maintained:
    """Put the small files of a table together, and delete what nothing needs.

    Args:
        sink: of the archive.
        spec: the table.
        before_us: wall time; earlier states that are younger are kept, and so is what is lying
            about, for it may be part of a commit.
        file_bytes: size of a file that is large enough, about.
        progress: called with the groups that are done, and how many there are.

    Raises:
        StorageConflict: archives came between again and again.
    """
    plain = table_schema(spec)
    sink.begin(spec.name, plain)
    before = sink.files(spec.name)
    groups = list(small_groups(before, file_bytes))
    for done, group in enumerate(groups):
        progress(done, len(groups))
        _put_together(sink, spec, group)
    progress(len(groups), len(groups))
    removed = sink.clean(spec.name, before_us=before_us)
    after = sink.files(spec.name)
    return Maintained(
        spec.name,
        len(before),
        len(after),
        sum(file.size for file in before),
        sum(file.size for file in after),
        sum(file.rows for file in after),
        removed.snapshots,
        removed.files,
        removed.bytes,
    )


def small_groups(files: Sequence[DataFile], file_bytes: int) -> Iterator[list[DataFile]]:
    """Files to be put together, by partition and offset, two or more to a group of about a size.

    Files over half the size stay as they are: made again and again they would cost more than
    they give.
    """
    group: list[DataFile] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.partition, file.first, file.path)):
        if file.size * 2 > file_bytes:
            continue
        if group and (size + file.size > file_bytes or file.partition != group[0].partition):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if len(group) > 1:
        yield group


def _put_together(sink: Sink, spec: TableSpec, group: list[DataFile]) -> None:
    for attempt in range(ATTEMPTS):
        position = sink.position(spec.name)
        schema = table_schema(spec, sink.fields(spec.name, table_schema(spec)))
        store = sink.store(spec.name)
        made = joined(
            group,
            schema,
            sink.data_directory(spec.name),
            store=store,
            layout=sink.layout(spec.name),
        )
        try:
            sink.replace(spec.name, group, made, schema=schema, expected=position)
        except StorageConflict:
            for file in made:
                store.delete(file.path)
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def joined(
    files: Sequence[DataFile],
    schema: Any,
    directory: str,
    *,
    store: Store = LOCAL,
    layout: Layout = Layout(),  # noqa: B008 - a frozen record
) -> list[DataFile]:
    """One file with the rows of several, in the columns of a schema; one for each partition.

    Columns that a file does not have are null; a narrower number becomes a wider one. Rows are in
    the order of the layout, as far as ``SORT_BYTES`` reach at a time.
    """
    made: dict[str, _Joined] = {}
    for run in _runs(files, schema, store, is_sorted=bool(layout.sort)):
        if layout.sort:
            sorted_rows = run.sort_by([(name, f"{way}ending") for name, way in layout.sort])
            batches = sorted_rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        else:
            batches = run.to_batches()
        for batch in batches:
            for partition, rows in parts(batch, layout):
                if partition not in made:
                    path = below(directory, f"{uuid.uuid4().hex}.parquet")
                    made[partition] = _Joined(path, schema, store)
                made[partition].write(rows)
    found = [each.close(files[0].table, partition) for partition, each in made.items()]
    assert sum(file.rows for file in found) == sum(file.rows for file in files)
    return found


def _runs(
    files: Sequence[DataFile], schema: Any, store: Store, *, is_sorted: bool
) -> Iterator[Any]:
    """Rows of files as tables: batch by batch, or as much as is sorted at a time."""
    held: list[Any] = []
    size = 0
    for each in files:
        with store.reading(each.path), pq.ParquetFile(store.opened(each.path)) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                held.append(_in_columns(batch, schema))
                size += held[-1].nbytes
                if not is_sorted or size >= SORT_BYTES:
                    yield pa.Table.from_batches(held, schema)
                    held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


class _Joined:
    """One file that rows are put together in."""

    def __init__(self, path: str, schema: Any, store: Store) -> None:
        self._path, self._store = path, store
        where, system = store.target(path)
        with store.errors(path):
            self._writer = pq.ParquetWriter(where, schema, filesystem=system, compression="zstd")
        self._rows = 0
        self._first = self._last = 0

    def write(self, rows: Any) -> None:
        with self._store.errors(self._path):
            self._writer.write_batch(rows)
        bounds = pc.min_max(rows.column("offset")).as_py()
        self._first = min(self._first, bounds["min"]) if self._rows else bounds["min"]
        self._last = max(self._last, bounds["max"])
        self._rows += rows.num_rows

    def close(self, table: str, partition: str) -> DataFile:
        with self._store.errors(self._path):
            self._writer.close()
        size = self._store.finish(self._path)
        return DataFile(table, self._path, self._rows, size, self._first, self._last, partition)


def _in_columns(batch: Any, schema: Any) -> Any:
    names = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
