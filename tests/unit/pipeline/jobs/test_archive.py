"""The archive is exactly once: in every format, and stopped between every pair of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.pipeline.logs import SECOND, START, append, open_log

from perdure.errors import ConfigError, StorageConflict
from perdure.model import Message
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
import pyarrow.parquet as pq

from perdure.pipeline.jobs import archive as job
from perdure.pipeline.jobs.archive import Archive, execute_here
from perdure.pipeline.sinks.contract import DataFile, Sink
from perdure.pipeline.sinks.delta import DeltaSink
from perdure.pipeline.sinks.iceberg import NAMESPACE, IcebergSink, local_catalog
from perdure.pipeline.sinks.parquet import ParquetSink
from perdure.pipeline.tables import parse_tables

# The libraries of the table formats use what newer releases of others deprecate.
pytestmark = pytest.mark.filterwarnings("default")

FORMATS = ("iceberg", "delta", "parquet")
SPECS = parse_tables(["devices=d/{device}/+"])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


def sink_of(kind: str, root: Path, database_id: str) -> Sink:
    if kind == "iceberg":
        return IcebergSink(local_catalog(root), database_id)
    root.mkdir(exist_ok=True)
    return DeltaSink(root, database_id) if kind == "delta" else ParquetSink(root, database_id)


def rows(kind: str, root: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, read as someone else would."""
    if kind == "iceberg":
        found = local_catalog(root).load_table((NAMESPACE, table)).scan().to_arrow()
    elif kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(root / table)).to_pyarrow_table()
    else:
        files = sorted((root / table).glob("offsets-*/*.parquet"))
        return sorted(
            (row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()),
            key=lambda row: row["offset"],
        )
    return sorted(found.to_pylist(), key=lambda row: row["offset"])


def archive_of(
    path: Path,
    sink: Sink,
    *,
    execute: Callable[..., Any] = execute_here,
    rows_per_round: int = job.ROWS_PER_ROUND,
    **options: Any,
) -> Archive:
    return Archive(
        ReadOptions(str(path / "db"), rows_per_partition=1_024, **options),
        sink,
        SPECS,
        progress=path / "progress.json",
        execute=execute,
        rows_per_round=rows_per_round,
    )


def record(database: RocksDatabase, count: int, at: int) -> list[Message]:
    topics = [f"d/{n % 7}/t" if n % 3 else f"other/{n % 2}" for n in range(count)]
    return append(database, topics, at=at)


def check(kind: str, root: Path, written: Sequence[Message]) -> None:
    devices = rows(kind, root, "devices")
    rest = rows(kind, root, "messages")
    assert [row["offset"] for row in devices] == [m.offset for m in written if m.topic[0] == "d"]
    assert [row["offset"] for row in rest] == [m.offset for m in written if m.topic[0] == "o"]
    by_offset = {message.offset: message for message in written}
    for row in devices + rest:
        message = by_offset[row["offset"]]
        assert row["topic"] == message.topic
        assert row["payload"] == message.payload
        assert row["client_id"] == message.publisher
        assert row["qos"] == message.qos
        assert round(row["published_at"].timestamp() * 1_000_000) == message.published_at_us
    assert {row["device"] for row in devices} <= {str(n) for n in range(7)}
    assert all(row["level_3"] == "t" for row in devices)


@pytest.mark.parametrize("kind", FORMATS)
def test_rounds_follow_each_other(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    archive = archive_of(tmp_path, sink, rows_per_round=1_500)
    assert archive.run_round().rows == 0
    written = record(database, 2_000, START)
    first = archive.run_round()
    assert 0 < first.rows <= 1_500
    assert not first.is_last
    second = archive.run_round()
    assert first.rows + second.rows == 2_000
    assert second.is_last
    database.rotate(START + 100 * SECOND)
    written += record(database, 10, START + 200 * SECOND)
    # As after a restart.
    sink.close()
    again = archive_of(tmp_path, sink_of(kind, root, database.format.database_id))
    assert again.run_round().rows == 10
    assert again.run_round().rows == 0
    check(kind, root, written)


class Stopped(Exception):
    """The process was killed here."""


class StoppingSink:
    """Stops before the n-th step that is asked of it, or after it."""

    def __init__(self, sink: Sink, step: int) -> None:
        self._sink = sink
        self._left = step

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Stopped

    def begin(self, table: str, schema: Any) -> None:
        self._step()
        self._sink.begin(table, schema)

    def position(self, table: str) -> int:
        self._step()
        return self._sink.position(table)

    def data_directory(self, table: str) -> str:
        self._step()
        return self._sink.data_directory(table)

    def commit(
        self, table: str, files: Sequence[DataFile], *, expected: int, position: int
    ) -> None:
        self._step()
        self._sink.commit(table, files, expected=expected, position=position)
        self._step()

    def close(self) -> None:
        self._sink.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_stopped_between_any_two_steps(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)
    stops = 0
    for step in range(1, 20):
        sink = StoppingSink(sink_of(kind, root, database.format.database_id), step)
        try:
            archive_of(tmp_path, sink).run_round()
        except Stopped:
            stops += 1
        # The broker goes on meanwhile.
        written += record(database, 5, START + step * SECOND)
    # Two begins, two directories, two positions, before and after two commits.
    assert stops == 10
    sink_after = sink_of(kind, root, database.format.database_id)
    archive_of(tmp_path, sink_after).run_round()
    check(kind, root, written)


def test_where_an_archive_began_does_not_move(database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)
    sink = sink_of("parquet", root, database.format.database_id)

    def failing(options: ReadOptions, task: job.WriteTask) -> list[DataFile]:
        raise Stopped

    began = archive_of(tmp_path, sink, execute=failing, after_offset=written[4].offset)
    with pytest.raises(Stopped):
        began.run_round()
    assert archive_of(tmp_path, sink, after_offset=written[30].offset).run_round().rows == 35
    check("parquet", root, written[5:])


def test_stopped_before_the_progress_was_saved(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)
    sink = sink_of("parquet", root, database.format.database_id)
    archive_of(tmp_path, sink).run_round()
    (tmp_path / "progress.json").unlink()
    written += record(database, 40, START + SECOND)
    assert archive_of(tmp_path, sink).run_round().rows == 40
    check("parquet", root, written)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_task_that_ran_twice_counts_once(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)

    def twice(options: ReadOptions, task: job.WriteTask) -> list[DataFile]:
        execute_here(options, task)
        return execute_here(options, task)

    sink = sink_of(kind, root, database.format.database_id)
    archive_of(tmp_path, sink, execute=twice).run_round()
    check(kind, root, written)


@pytest.mark.parametrize("kind", FORMATS)
def test_two_archives_at_once_conflict(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)
    one, other = (sink_of(kind, root, database.format.database_id) for _ in range(2))

    def while_another_does(options: ReadOptions, task: job.WriteTask) -> list[DataFile]:
        files = execute_here(options, task)
        archive_of(tmp_path, other).run_round()
        return files

    with pytest.raises(StorageConflict, match="was moved"):
        archive_of(tmp_path, one, execute=while_another_does).run_round()
    check(kind, root, written)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_with_other_columns_is_refused(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    archive_of(tmp_path, sink_of(kind, root, database.format.database_id))
    other = parse_tables(["devices=d/{another}/+"])
    with pytest.raises(ConfigError, match="other columns"):
        Archive(
            ReadOptions(str(tmp_path / "db")),
            sink_of(kind, root, database.format.database_id),
            other,
            progress=tmp_path / "progress.json",
            execute=execute_here,
        )


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_the_log_of_another_database_is_refused(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    archive_of(tmp_path, sink_of(kind, root, database.format.database_id))
    with pytest.raises(ConfigError, match="another database"):
        archive_of(tmp_path, sink_of(kind, root, "other"))


def test_a_drop_before_the_archive_is_an_error_or_skipped(
    database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    sink = sink_of("parquet", root, database.format.database_id)
    written = record(database, 10, START)
    archive_of(tmp_path, sink).run_round()
    record(database, 10, START + SECOND)
    database.rotate(START + 100 * SECOND)
    written += record(database, 10, START + 200 * SECOND)
    database.drop_generation(1)
    with pytest.raises(ConfigError, match="were dropped"):
        archive_of(tmp_path, sink).run_round()
    archive_of(tmp_path, sink, skip_data_loss=True).run_round()
    check("parquet", root, written)


def test_what_does_not_belong_to_the_filter_is_not_archived(
    database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    sink = sink_of("parquet", root, database.format.database_id)
    written = record(database, 50, START)
    archive_of(tmp_path, sink, filter_sets=(("other/1",),)).run_round()
    found = [row["offset"] for row in rows("parquet", root, "messages")]
    assert found == [m.offset for m in written if m.topic == "other/1"]
    assert rows("parquet", root, "devices") == []
    progress = msgspec.json.decode((tmp_path / "progress.json").read_bytes())
    assert progress["shards"]["0"]["offset"] == written[-1].offset
