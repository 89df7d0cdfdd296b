"""Copies the log into tables, exactly once. Knows no Spark: what runs the tasks is given to it.

A round takes the messages after the last one, up to the newest or a limit::

    plan -> tasks write Parquet files -> for each table: commit files and position -> progress

A table's own position, committed with its files, is what makes it exactly once: the next round
leaves out what is in the table already. The progress file only says where to begin reading, so
that it may be behind, or lost: then the same messages are read again and left out.

Invariant: a crash between any two steps leaves no table with a message twice, and the next round
brings what is missing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from perdure.limits import OFFSET_MAX
from perdure.pipeline import offsets
from perdure.pipeline.log_source import plan, read
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import Narrowing, ReadOptions
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.sinks.contract import DataFile, Sink
from perdure.pipeline.tables import TableSpec, split, table_schema
from perdure.storage.rocksdb.bulk import LogFiles

ROWS_PER_ROUND: Final = 5_000_000
"""Bounds what is read again after a crash, and the size of a commit."""

RESULT: Final = pa.schema(
    [("table", pa.string()), ("path", pa.string()), ("rows", pa.int64()), ("size", pa.int64())]
)
RESULT_DDL: Final = "table string, path string, rows bigint, size bigint"


class WriteTask(msgspec.Struct, frozen=True):
    """What the tasks of a round have in common; travels to them.

    Attributes:
        specs: tables, the catch-all last.
        directories: where to write the files of each.
        positions: what each table holds already.
    """

    specs: tuple[TableSpec, ...]
    directories: tuple[str, ...]
    positions: tuple[int, ...]


class Round(msgspec.Struct, frozen=True):
    """What a round did.

    Attributes:
        rows: messages added to tables.
        files: files added.
        position: everything up to here is archived.
        is_last: the log had no more messages when the round was planned.
    """

    rows: int
    files: int
    position: StreamPosition
    is_last: bool


Execute: TypeAlias = Callable[[ReadOptions, WriteTask], Iterable[DataFile]]
"""Reads the range of the options and runs ``write_batches`` on its batches, in any number of
tasks; returns the files of those that succeeded."""


@final
class Archive:
    """One archive.

    Args:
        options: what is archived: directory, filter, where a new archive begins.
        sink: where to.
        specs: tables, the catch-all last.
        progress: file that says where to begin reading.
        execute: runs the tasks.
        rows_per_round: most messages of a round.
    """

    def __init__(
        self,
        options: ReadOptions,
        sink: Sink,
        specs: tuple[TableSpec, ...],
        *,
        progress: Path,
        execute: Execute,
        rows_per_round: int = ROWS_PER_ROUND,
    ) -> None:
        self._options = options
        self._sink = sink
        self._specs = specs
        self._progress = progress
        self._execute = execute
        self._rows_per_round = rows_per_round
        for spec in specs:
            sink.begin(spec.name, table_schema(spec))

    def run_round(self) -> Round:
        """Archive the next messages.

        Raises:
            ConfigError: messages were dropped before they were archived.
        """
        files = LogFiles(Path(self._options.path))
        try:
            start = self._start(files)
            end = offsets.latest(
                files, start, self._options, rows_max=self._rows_per_round, cap=OFFSET_MAX
            )
            newest = files.newest()
        finally:
            files.close()
        is_last = newest is None or newest.offset <= end.offset
        if end.offset <= start.offset:
            return Round(0, 0, end, is_last)
        task = WriteTask(
            self._specs,
            tuple(self._sink.data_directory(spec.name) for spec in self._specs),
            tuple(self._sink.position(spec.name) for spec in self._specs),
        )
        part = msgspec.structs.replace(
            self._options, after_offset=start.offset, until_offset=end.offset
        )
        written = list(self._execute(part, task))
        for spec, expected in zip(self._specs, task.positions, strict=True):
            own = [file for file in written if file.table == spec.name]
            if own:
                self._sink.commit(spec.name, own, expected=expected, position=end.offset)
        self._save(end)
        return Round(sum(file.rows for file in written), len(written), end, is_last)

    def _start(self, files: LogFiles) -> StreamPosition:
        if self._progress.exists():
            return offsets.parse_position(msgspec.json.decode(self._progress.read_bytes()))
        # Kept before anything is written: where an archive begins may be an age (2h), which has
        # moved on when a first round that failed is tried again.
        start = offsets.initial(files, self._options)
        self._save(start)
        return start

    def _save(self, position: StreamPosition) -> None:
        partial = self._progress.with_name(f"{self._progress.name}.{os.getpid()}")
        partial.write_bytes(msgspec.json.encode(position))
        partial.replace(self._progress)


def database_id(path: Path) -> str:
    """Whose log is in a directory."""
    files = LogFiles(path)
    try:
        return files.database_id
    finally:
        files.close()


def write_batches(task: WriteTask, batches: Iterable[Any]) -> Iterator[Any]:
    """Write record batches to a Parquet file for each table; gives one batch of ``RESULT``.

    The body of a Spark task: it may run twice, and files of a run that failed are never used.
    """
    writers: dict[int, tuple[Path, Any]] = {}
    rows = [0] * len(task.specs)
    for batch in batches:
        for number, part in enumerate(split(batch, task.specs, task.positions)):
            if not part.num_rows:
                continue
            if number not in writers:
                path = Path(task.directories[number], f"{uuid.uuid4().hex}.parquet")
                writer = pq.ParquetWriter(
                    path, table_schema(task.specs[number]), compression="zstd"
                )
                writers[number] = (path, writer)
            writers[number][1].write_batch(part)
            rows[number] += part.num_rows
    results = []
    for number, (path, writer) in writers.items():
        writer.close()
        _sync(path)
        results.append(
            {
                "table": task.specs[number].name,
                "path": str(path),
                "rows": rows[number],
                "size": path.stat().st_size,
            }
        )
    yield pa.RecordBatch.from_pylist(results, schema=RESULT)


def execute_here(options: ReadOptions, task: WriteTask) -> list[DataFile]:
    """Run the tasks of a round in this process, one after the other."""
    files = LogFiles(Path(options.path))
    try:
        parts = plan(files, options, Narrowing())
    finally:
        files.close()
    return [
        file
        for part in parts
        for result in write_batches(task, read(part, list(BY_NAME)))
        for file in data_files(result.to_pylist())
    ]


def data_files(rows: Sequence[Any]) -> list[DataFile]:
    """The files in rows of ``RESULT``."""
    return [DataFile(row["table"], row["path"], row["rows"], row["size"]) for row in rows]


def _sync(path: Path) -> None:
    """Make a file safe against power loss: its commit must not outlive it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
