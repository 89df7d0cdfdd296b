"""Keeps the tables of an archive fit to be read: few files, no states that nobody asks for.

Small files are put together into larger ones, a group at a time, each in a commit of its own that
leaves the rows and the table's position as they are; then earlier states of the table are forgotten
and files that nothing needs are deleted. An archive may run meanwhile. Knows no Spark.

Invariant: a crash at any point leaves the same rows in the table and the same position; files that
were left over are deleted by a later run.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from perdure.errors import StorageConflict
from perdure.pipeline.jobs.archive_files import BATCH_ROWS
from perdure.pipeline.sinks.contract import DataFile, Sink
from perdure.pipeline.tables import TableSpec, table_schema

FILE_BYTES: Final = 128 * 1024 * 1024
"""What files are put together to; large enough to be read at full speed."""

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
    """Files to be put together, by offset, two or more to a group of about a size.

    Files over half the size stay as they are: made again and again they would cost more than
    they give.
    """
    group: list[DataFile] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.first, file.path)):
        if file.size * 2 > file_bytes:
            continue
        if group and size + file.size > file_bytes:
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
        made = joined(group, schema, sink.data_directory(spec.name))
        try:
            sink.replace(spec.name, group, [made], schema=schema, expected=position)
        except StorageConflict:
            Path(made.path).unlink(missing_ok=True)
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def joined(files: Sequence[DataFile], schema: Any, directory: str) -> DataFile:
    """One file with the rows of several, in the columns of a schema.

    Columns that a file does not have are null; a narrower number becomes a wider one.
    """
    path = Path(directory) / f"{uuid.uuid4().hex}.parquet"
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for each in files:
            with pq.ParquetFile(each.path) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    writer.write_batch(_in_columns(batch, schema))
                    rows += batch.num_rows
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    assert rows == sum(file.rows for file in files)
    return DataFile(
        files[0].table,
        str(path),
        rows,
        path.stat().st_size,
        min(file.first for file in files),
        max(file.last for file in files),
    )


def _in_columns(batch: Any, schema: Any) -> Any:
    names = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
