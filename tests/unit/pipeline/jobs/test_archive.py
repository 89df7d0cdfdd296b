"""The archive is exactly once: in every format, and stopped between every pair of steps."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError, StorageConflict
from perdure.model import Message
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
import pyarrow.parquet as pq

from perdure.pipeline.archive_file import NAME
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.fields import Fields
from perdure.pipeline.jobs import archive as job
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.jobs.archive_files import WriteTask, Written
from perdure.pipeline.lake.catalogs import local_catalog
from perdure.pipeline.lake.lake import NAMESPACE
from perdure.pipeline.lake.layouts import Layout
from perdure.pipeline.lake.stores import Store
from perdure.pipeline.sinks.contract import DataFile, Removed, Sink
from perdure.pipeline.sinks.delta import DeltaSink
from perdure.pipeline.sinks.iceberg import IcebergSink
from perdure.pipeline.sinks.parquet import ParquetSink
from perdure.pipeline.tables import TableSpec, parse_table

# The libraries of the table formats use what newer releases of others deprecate.
pytestmark = pytest.mark.filterwarnings("default")

FORMATS = ("iceberg", "delta", "parquet")
SPECS = (parse_table("devices=d/{device}/+"),)


def sink_of(kind: str, root: Path, database_id: str) -> Sink:
    root.mkdir(exist_ok=True)
    if kind == "iceberg":
        return IcebergSink(local_catalog(root), database_id)
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
    specs: tuple[TableSpec, ...] = SPECS,
    learns: bool = False,
    **options: Any,
) -> Archive:
    return Archive(
        ReadOptions(str(path / "db"), rows_per_partition=1_024, **options),
        sink,
        Wanted(specs, learns=learns),
        directory=path,
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

    def fields(self, table: str, plain: Any) -> Fields:
        self._step()
        return self._sink.fields(table, plain)

    def files(self, table: str) -> list[DataFile]:
        self._step()
        return self._sink.files(table)

    def replace(
        self,
        table: str,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        *,
        schema: Any,
        expected: int,
    ) -> None:
        self._step()
        self._sink.replace(table, old, new, schema=schema, expected=expected)
        self._step()

    def clean(self, table: str, *, before_us: int) -> Removed:
        return self._sink.clean(table, before_us=before_us)

    def position(self, table: str) -> int:
        self._step()
        return self._sink.position(table)

    def data_directory(self, table: str) -> str:
        self._step()
        return self._sink.data_directory(table)

    def store(self, table: str) -> Store:
        self._step()
        return self._sink.store(table)

    def layout(self, table: str) -> Layout:
        self._step()
        return self._sink.layout(table)

    def commit(
        self, table: str, files: Sequence[DataFile], *, schema: Any, expected: int, position: int
    ) -> None:
        self._step()
        self._sink.commit(table, files, schema=schema, expected=expected, position=position)
        self._step()

    def close(self) -> None:
        self._sink.close()


@pytest.mark.parametrize("kind", FORMATS)
def test_stopped_between_any_two_steps(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)
    stops = 0
    for step in range(1, 30):
        sink = StoppingSink(sink_of(kind, root, database.format.database_id), step)
        try:
            archive_of(tmp_path, sink).run_round()
        except Stopped:
            stops += 1
        # The broker goes on meanwhile.
        written += record(database, 5, START + step * SECOND)
    # Two begins, directories, positions, looks at columns, stores and layouts; before and after two
    # commits.
    assert stops == 16
    sink_after = sink_of(kind, root, database.format.database_id)
    archive_of(tmp_path, sink_after).run_round()
    check(kind, root, written)


def test_where_an_archive_began_does_not_move(database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)
    sink = sink_of("parquet", root, database.format.database_id)

    def failing(options: ReadOptions, task: WriteTask) -> list[Written]:
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
    (tmp_path / NAME).unlink()
    written += record(database, 40, START + SECOND)
    assert archive_of(tmp_path, sink).run_round().rows == 40
    check("parquet", root, written)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_task_that_ran_twice_counts_once(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    written = record(database, 40, START)

    def twice(options: ReadOptions, task: WriteTask) -> list[Written]:
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

    def while_another_does(options: ReadOptions, task: WriteTask) -> list[Written]:
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
    sink = sink_of(kind, root, database.format.database_id)
    archive_of(tmp_path, sink).run_round()
    other = (parse_table("devices=d/{another}/+"),)
    with pytest.raises(ConfigError, match="other columns"):
        archive_of(tmp_path, sink, specs=other).run_round()


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_the_log_of_another_database_is_refused(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    archive_of(tmp_path, sink_of(kind, root, database.format.database_id)).run_round()
    with pytest.raises(ConfigError, match="another database"):
        archive_of(tmp_path, sink_of(kind, root, "other")).run_round()


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
    state = load_state(tmp_path)
    assert state is not None
    assert state.position.offset == written[-1].offset


# -- columns out of payloads ---------------------------------------------------------------


def fields_of(kind: str, root: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in names) for row in rows(kind, root, "devices")]


@pytest.mark.parametrize("kind", FORMATS)
def test_fields_of_payloads_are_columns_that_grow(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    topics = ["d/1/t", "d/2/t", "other/1"]
    first = [b'{"t": 21, "unit": "C"}', b"no json", b'{"t": 1}']
    append(database, topics, at=START, payloads=first)
    done = archive_of(tmp_path, sink).run_round()
    assert (done.tables, done.columns) == (
        ("devices", "messages"),
        ("devices.t", "devices.unit"),
    )
    then = [b'{"t": 21.5, "at": {"lat": 1}}', b'{"t": "warm", "unit": "F"}', b'{"t": 1}']
    append(database, topics, at=START + SECOND, payloads=then)
    done = archive_of(tmp_path, sink).run_round()
    # Whole numbers became double, a word is no number, a new field has a new column.
    assert (done.columns, done.misfits) == (("devices.t", "devices.at_lat"), 1)
    assert fields_of(kind, root, ("t", "unit", "at_lat", "payload", "device")) == [
        (21.0, "C", None, first[0], "1"),
        (None, None, None, first[1], "2"),
        (21.5, None, 1, then[0], "1"),
        (None, "F", None, then[1], "2"),
    ]
    assert isinstance(rows(kind, root, "devices")[0]["t"], float)
    assert "t" not in rows(kind, root, "messages")[0]
    assert archive_of(tmp_path, sink).run_round().rows == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_stopped_while_columns_grow(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    database_id = database.format.database_id
    payloads = [b'{"t": 1}', b'{"t": 2, "u": 1}', b'{"t": 2.5, "u": "x", "v": true}']
    written: list[Message] = []
    for number, payload in enumerate(payloads):
        written += append(
            database,
            ["d/1/t", "other/1"] * 3,
            at=START + number * SECOND,
            payloads=[payload] * 6,
        )
        stops = 0
        for step in range(1, 30):
            try:
                sink = StoppingSink(sink_of(kind, root, database_id), step)
                archive_of(tmp_path, sink).run_round()
                break
            except Stopped:
                stops += 1
        assert stops >= 10
    check(kind, root, written)
    assert fields_of(kind, root, ("t", "u", "v")) == [
        *[(1.0, None, None)] * 3,
        *[(2.0, 1, None)] * 3,
        *[(2.5, None, True)] * 3,
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_tasks_that_find_other_columns_agree(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    written = append(
        database,
        ["d/1/t"] * 5,
        at=START,
        payloads=[b'{"x": "one"}', b'{"x": 1}', b'{"x": 2, "y": 1}', b'{"x": 2.5}', b"[]"],
    )

    def one_by_one(options: ReadOptions, task: WriteTask) -> list[Written]:
        bounds = [options.after_offset, *(message.offset for message in written)]
        found: list[Written] = []
        for after, until in itertools.pairwise(bounds):
            part = msgspec.structs.replace(options, after_offset=after, until_offset=until)
            found += execute_here(part, task)
        assert [each.fields.get("x") for each in found] == [
            "string",
            "long",
            "long",
            "double",
            None,
        ]
        return found

    done = archive_of(tmp_path, sink, execute=one_by_one).run_round()
    assert (done.rows, done.misfits) == (5, 1)
    assert fields_of(kind, root, ("x", "y", "value")) == [
        (None, None, None),
        (1.0, None, None),
        (2.0, 1, None),
        (2.5, None, None),
        (None, None, "[]"),
    ]
    # What was made again left nothing behind that is in no table.
    files = [file.path for name in ("devices", "messages") for file in sink.files(name)]
    found = [str(path) for path in root.rglob("*.parquet") if path.name[0] != "."]
    assert sorted(found) == sorted(files)


@pytest.mark.parametrize("kind", FORMATS)
def test_files_tell_their_offsets(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path / "tables", database.format.database_id)
    written = append(database, ["d/1/t"] * 5, at=START)
    archive_of(tmp_path, sink).run_round()
    (file,) = sink.files("devices")
    assert (file.rows, file.first, file.last) == (5, written[0].offset, written[-1].offset)
    assert Path(file.path).stat().st_size == file.size


@pytest.mark.parametrize("kind", FORMATS)
def test_duckdb_reads_the_same_rows(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    for number, payload in enumerate((b'{"t": 1}', b'{"t": 2.5, "u": "x"}')):
        at = START + number * SECOND
        append(database, ["d/1/t", "other/1"], at=at, payloads=[payload] * 2)
        archive_of(tmp_path, sink).run_round()
    connection = duckdb.connect()
    if kind == "parquet":
        table = f"read_parquet('{root}/devices/offsets-*/*.parquet', union_by_name = true)"
    else:
        # Its extensions for both come from the network; the table's own reader hands the rows over.
        if kind == "iceberg":
            devices = local_catalog(root).load_table((NAMESPACE, "devices")).scan().to_arrow()
        else:
            from deltalake import DeltaTable

            devices = DeltaTable(str(root / "devices")).to_pyarrow_dataset()
        connection.register("devices", devices)
        table = "devices"
    found = connection.execute(f'select device, t, u from {table} order by "offset"').fetchall()
    assert found == [("1", 1.0, None), ("1", 2.5, "x")]
    connection.close()


def test_another_writer_between_check_and_commit_is_not_overlooked(
    database: RocksDatabase, tmp_path: Path
) -> None:
    """pyiceberg would add the files a second time, to what the other one left."""
    root = tmp_path / "tables"
    written = append(database, ["d/1/t"] * 5, at=START)
    identity = database.format.database_id
    other = archive_of(tmp_path, sink_of("iceberg", root, identity))

    class Catalog:
        """Lets another archive go first when a commit is about to be made."""

        def __init__(self) -> None:
            self._inner = local_catalog(root)
            self.is_armed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def load_table(self, name: tuple[str, str]) -> Any:
            table = self._inner.load_table(name)
            table.catalog = self
            return table

        def commit_table(self, *arguments: Any) -> Any:
            if self.is_armed:
                self.is_armed = False
                other.run_round()
            return self._inner.commit_table(*arguments)

    catalog = Catalog()
    sink = IcebergSink(catalog, identity)

    def arming(options: ReadOptions, task: WriteTask) -> list[Written]:
        files = execute_here(options, task)
        catalog.is_armed = True
        return files

    with pytest.raises(StorageConflict, match="changed meanwhile"):
        archive_of(tmp_path, sink, execute=arming).run_round()
    assert not catalog.is_armed
    assert archive_of(tmp_path, sink).run_round().rows == 0
    check("iceberg", root, written)


# -- tables for what was learned -----------------------------------------------------------


def everything(kind: str, root: Path, directory: Path) -> dict[str, list[int]]:
    """The offsets in each table of an archive."""
    state = load_state(directory)
    assert state is not None
    return {
        spec.name: [row["offset"] for row in rows(kind, root, spec.name)] for spec in state.tables
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_learned_gets_tables(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    early = append(database, ["rooms/0/t", "halls/0/t"], at=START)
    archive_of(tmp_path, sink, specs=(), learns=True).run_round()
    assert everything(kind, root, tmp_path) == {"messages": [m.offset for m in early]}
    topics = [f"rooms/{n}/t" for n in range(6)]
    later = append(database, topics, at=START + SECOND, payloads=[b'{"t": 1}'] * 6)
    done = archive_of(tmp_path, sink, specs=(), learns=True).run_round()
    assert done.columns == ("rooms_t.t",)
    assert everything(kind, root, tmp_path) == {
        "messages": [m.offset for m in early],
        "rooms_t": [m.offset for m in later],
    }
    assert [row["level_2"] for row in rows(kind, root, "rooms_t")] == list("012345")


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_do_not_change_between_two_attempts(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    root = tmp_path / "tables"
    identity = database.format.database_id
    append(database, [f"rooms/{n}/t" for n in range(6)], at=START)
    append(database, ["halls/0/t"], at=START + SECOND)
    written = 7
    for step in range(1, 40):
        try:
            sink = StoppingSink(sink_of(kind, root, identity), step)
            archive_of(tmp_path, sink, specs=(), learns=True).run_round()
            break
        except Stopped:
            # More is learned of topics that wait to be archived.
            append(database, [f"halls/{step}/t"], at=START + (step + 1) * SECOND)
            written += 1
    while (
        archive_of(tmp_path, sink_of(kind, root, identity), specs=(), learns=True).run_round().rows
    ):
        pass
    found = everything(kind, root, tmp_path)
    assert set(found) == {"messages", "rooms_t", "halls_t"}
    offsets = [offset for table in found.values() for offset in table]
    assert len(offsets) == len(set(offsets)) == written
    assert len(found["rooms_t"]) == 6


def test_a_lost_state_is_not_guessed(database: RocksDatabase, tmp_path: Path) -> None:
    sink = sink_of("parquet", tmp_path / "tables", database.format.database_id)
    append(database, [f"rooms/{n}/t" for n in range(6)], at=START)
    archive_of(tmp_path, sink, specs=(), learns=True).run_round()
    (tmp_path / NAME).unlink()
    with pytest.raises(ConfigError, match=r"no archive\.json"):
        archive_of(tmp_path, sink, specs=(), learns=True).run_round()


def test_an_archive_stays_what_it_was_begun_as(database: RocksDatabase, tmp_path: Path) -> None:
    sink = sink_of("parquet", tmp_path / "tables", database.format.database_id)
    append(database, ["a"], at=START)
    archive_of(tmp_path, sink).run_round()
    with pytest.raises(ConfigError, match="other topics"):
        archive_of(tmp_path, sink, filter_sets=(("a",),)).run_round()
    wanted = Wanted(format="delta")
    with pytest.raises(ConfigError, match="in the format iceberg"):
        Archive(
            ReadOptions(str(tmp_path / "db")),
            sink,
            wanted,
            directory=tmp_path,
            execute=execute_here,
        ).run_round()


def test_who_never_lives_to_the_end_of_a_round_takes_less_at_once(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed each few seconds, an archive began the same round of five million again and again."""
    monkeypatch.setattr(job, "ROWS_MIN", 10)
    taken: list[int] = []

    def execute(options: ReadOptions, task: WriteTask) -> list[Written]:
        written = list(execute_here(options, task))
        taken.append(sum(each.file.rows for each in written))
        if taken[-1] > 30:
            raise Stopped
        return written

    written = record(database, 300, START)
    sink = sink_of("parquet", tmp_path / "tables", database.format.database_id)
    archived = 0
    while archived < 300:
        with contextlib.suppress(Stopped):
            archive = archive_of(tmp_path, sink, execute=execute, rows_per_round=200)
            archived += archive.run_round().rows
    assert taken[:6] == [200, 50, 12, 24, 48, 12]
    check("parquet", tmp_path / "tables", written)


def test_rounds_are_as_large_as_ever_where_none_was_cut_off(
    database: RocksDatabase, tmp_path: Path
) -> None:
    record(database, 300, START)
    sink = sink_of("parquet", tmp_path / "tables", database.format.database_id)
    for _ in range(3):
        assert archive_of(tmp_path, sink, rows_per_round=100).run_round().rows == 100
