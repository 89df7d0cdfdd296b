"""Spark's names for the source: what Spark would call, without a Java machine."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.storage.rocksdb import RocksDatabase, following
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.storage.rocksdb.following import Follower
from tests.unit.pipeline.logs import SECOND, START, append
from tests.unit.web.asgi import TOKEN as HTTP_TOKEN
from tests.unit.web.child import WebProcess

pytest.importorskip("pyspark")
from pyspark.sql import datasource as spark
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from perdure.pipeline import looks, offsets, source
from perdure.pipeline.source import LogReader, LogStreamReader, PushdownReader


def schema(**columns: str) -> SimpleNamespace:
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
        for name, kind in columns.items()
    ]
    return SimpleNamespace(fields=fields)


TOPIC = schema(topic="string", offset="bigint")


def data_source(path: Path, **options: str) -> source.PerdureDataSource:
    return source.PerdureDataSource({"path": str(path / "db"), **options})


def rows(reader: LogReader | LogStreamReader, parts: list[source.LogPartition]) -> list[str]:
    return [
        topic
        for part in parts
        for batch in reader.read(part)
        for topic in batch.column("topic").to_pylist()
    ]


def test_it_is_found_by_its_name() -> None:
    import pyspark_perdure

    assert pyspark_perdure.DefaultSource.name() == "perdure"
    assert pyspark_perdure.__name__.startswith("pyspark_")


def test_a_batch_read(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["a/1", "b", "a/2"], at=START)
    reader = data_source(tmp_path, topic="a/#").reader(TOPIC)
    assert isinstance(reader, LogReader)
    assert sorted(rows(reader, reader.partitions())) == ["a/1", "a/2"]
    assert list(reader.read(spark.InputPartition(None))) == []


def test_only_the_worker_that_pushes_down_gets_a_reader_that_can(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(data_source(tmp_path, pushdown="once").reader(TOPIC)) is LogReader
    monkeypatch.setitem(sys.modules, source._PUSHDOWN_WORKER, sys)
    assert type(data_source(tmp_path).reader(TOPIC)) is LogReader
    append(database, ["a/1", "b", "a/2"], at=START)
    reader = data_source(tmp_path, pushdown="once").reader(TOPIC)
    assert isinstance(reader, PushdownReader)
    filters = [
        spark.EqualTo(("topic",), "b"),
        spark.IsNotNull(("topic",)),
        spark.Not(spark.EqualTo(("offset",), 3)),
        spark.EqualTo(("user_properties", "name"), "x"),
    ]
    # Spark tries them all again: none is claimed.
    assert reader.pushFilters(filters) == filters
    assert rows(reader, reader.partitions()) == ["b"]


def test_only_processes_of_spark_keep_what_they_have_imported(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(database, ["a"], at=START)
    frozen: list[bool] = []
    # Counting what is frozen takes 5 ms: it has nothing else.
    monkeypatch.setattr(source, "gc", SimpleNamespace(freeze=lambda: frozen.append(True)))
    monkeypatch.setattr(source, "_modules_settled", 0)
    options = {"path": str(tmp_path / "db")}
    reader = source.PerdureDataSource(options).reader(schema(topic="string"))
    (part,) = reader.partitions()
    assert list(reader.read(part))
    assert not frozen
    main = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    for _ in range(2):
        assert list(reader.read(part))
    assert frozen == [True]
    monkeypatch.setitem(sys.modules, "imported_later", SimpleNamespace())
    for _ in range(2):
        assert list(reader.read(part))
    assert frozen == [True, True]


def test_nothing_is_written(tmp_path: Path) -> None:
    found = source.PerdureDataSource({"path": str(tmp_path)})
    for writer in (found.writer, found.streamWriter):
        with pytest.raises(source.SourceError, match=r"^perdure: the log is read only here"):
            writer(schema(topic="string"), False)


def test_errors_are_one_sentence_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(source.SourceError, match=r"^perdure: unknown option 'topik' \(did you"):
        data_source(tmp_path, topik="a").reader(TOPIC)
    with pytest.raises(source.SourceError, match="holds no database"):
        data_source(tmp_path).reader(TOPIC).partitions()
    with pytest.raises(source.SourceError, match="unknown column 'colour'"):
        data_source(tmp_path).reader(schema(colour="string"))
    with pytest.raises(source.SourceError, match="column topic is string, not int"):
        data_source(tmp_path).reader(schema(topic="int"))
    with pytest.raises(source.SourceError, match=r"until, endingOffsets, .* are for batch reads"):
        data_source(tmp_path, until="1h").streamReader(TOPIC)


def test_an_offset_to_begin_at_that_was_dropped_is_told(
    database: RocksDatabase, tmp_path: Path
) -> None:
    first, second, *_ = append(database, ["a"] * 9, at=START)
    database.rotate(START + SECOND)
    kept = append(database, ["b"], at=START + 2 * SECOND)
    given = {"startingOffsets": str(second.offset)}
    assert len(rows_of_batch(tmp_path, **given)) == 9
    database.drop_generation(1)
    with pytest.raises(source.SourceError, match="no longer has all after offset"):
        rows_of_batch(tmp_path, **given)
    with pytest.raises(source.SourceError, match="failOnDataLoss false"):
        rows_of_stream(tmp_path, **given)
    given["failOnDataLoss"] = "false"
    assert rows_of_batch(tmp_path, **given) == ["b"]
    assert rows_of_stream(tmp_path, **given) == ["b"]
    # What was never there is no loss.
    there = {"startingOffsets": str(kept[0].offset)}
    assert rows_of_batch(tmp_path, **there) == ["b"]
    assert rows_of_stream(tmp_path, **there) == ["b"]
    assert rows_of_stream(tmp_path, startingOffsets="earliest") == ["b"]
    assert rows_of_batch(tmp_path, **{"from": str(first.offset)}) == ["b"]


def test_what_a_stream_passes_over_is_told(
    database: RocksDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who went on behind lost messages was never told that there had been any."""
    append(database, ["a"] * 9, at=START)
    reader = data_source(tmp_path, failOnDataLoss="false").streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    database.rotate(START + SECOND)
    append(database, ["b"], at=START + 2 * SECOND)
    database.drop_generation(1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows(reader, reader.partitions(start, end)) == ["b"]
    (told,) = (record.getMessage() for record in caplog.records)
    assert f"offsets {offsets.parse_position(start).offset + 1} to " in told
    rows(reader, reader.partitions(end, end))
    assert len(caplog.records) == 1


def rows_of_batch(home: Path, **options: str) -> list[str]:
    reader = data_source(home, **options).reader(TOPIC)
    assert isinstance(reader, LogReader)
    return rows(reader, reader.partitions())


def rows_of_stream(home: Path, **options: str) -> list[str]:
    reader = data_source(home, **options).streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    return rows(reader, reader.partitions(start, end))


def test_a_stream_goes_on_where_it_stood(database: RocksDatabase, tmp_path: Path) -> None:
    append(database, ["a/1", "b", "a/2"], at=START)
    reader = data_source(tmp_path, topic="a/#").streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    start = reader.initialOffset()
    one = reader.latestOffset(start, ReadMaxRows(1))
    two = reader.latestOffset(one, ReadAllAvailable())
    assert rows(reader, reader.partitions(start, one)) == ["a/1"]
    assert rows(reader, reader.partitions(one, two)) == ["a/2"]
    assert rows(reader, reader.partitions(start, two)) == ["a/1", "a/2"]
    assert reader.latestOffset(two, ReadAllAvailable()) == two
    assert reader.partitions(two, two) == []


def test_where_a_query_began_does_not_cut_what_comes_later(
    database: RocksDatabase, tmp_path: Path
) -> None:
    append(database, ["a"] * 9, at=START)
    reader = data_source(tmp_path, **{"from": str(START + 1)}).streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(rows(reader, reader.partitions(start, end))) == 8
    # An age has moved on when the query starts again.
    later = data_source(tmp_path, **{"from": "1s"}).streamReader(TOPIC)
    assert isinstance(later, LogStreamReader)
    assert len(rows(later, later.partitions(start, end))) == 8


def test_available_now_ends_where_the_log_ended(database: RocksDatabase, tmp_path: Path) -> None:
    reader = data_source(tmp_path, maxRowsPerTrigger="2").streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    assert reader.reportLatestOffset() is None
    append(database, ["a"] * 3, at=START)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(2)
    reader.prepareForTriggerAvailableNow()
    known = reader.reportLatestOffset()
    append(database, ["a"] * 3, at=START + 1_000_000)
    position = reader.initialOffset()
    sizes = []
    while (end := reader.latestOffset(position, limit)) != position:
        sizes.append(len(rows(reader, reader.partitions(position, end))))
        position = end
    assert sizes == [2, 1]
    assert position == known


def test_a_stream_that_has_reached_the_end_lets_some_time_pass(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    moments = iter(range(1_000_000))
    monkeypatch.setattr(
        looks,
        "time",
        SimpleNamespace(monotonic=lambda: next(moments) / 100, sleep=slept.append),
    )
    waited: list[float] = []
    monkeypatch.setattr(Follower, "wait", lambda _, timeout_s: waited.append(timeout_s))
    append(database, ["a"] * 4, at=START)
    reader = data_source(tmp_path).streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    start = reader.initialOffset()
    # There is more to read: at once.
    half = reader.latestOffset(start, ReadMaxRows(2))
    whole = reader.latestOffset(half, ReadAllAvailable())
    assert (slept, waited) == ([], [])
    # At the end, with something read before: until it is half a second.
    append(database, ["a"], at=START + 1_000_000)
    last = reader.latestOffset(whole, ReadAllAvailable())
    assert (slept, waited) == ([pytest.approx(looks.INTERVAL_S - 0.01)], [])
    slept.clear()
    # Nothing was written: until something is, or Spark may want to stop.
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    slept.clear()
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert (slept, waited) == ([], [looks.IDLE_WAIT_S])
    # Nothing more is wanted.
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert (slept, waited) == ([], [looks.IDLE_WAIT_S])
    reader.stop()


def test_a_stream_opens_its_directory_once_in_a_process(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "INTERVAL_S", 0.0)
    opened: list[Path] = []

    def counting(path: Path, **options: Any) -> LogFiles:
        opened.append(path)
        return LogFiles(path, **options)

    monkeypatch.setattr(following, "LogFiles", counting)
    reader = data_source(tmp_path).streamReader(TOPIC)
    assert isinstance(reader, LogStreamReader)
    position = reader.initialOffset()
    for number in range(4):
        append(database, [f"a/{number}"], at=START + number * 1_000_000)
        end = reader.latestOffset(position, ReadAllAvailable())
        parts = pickle.loads(pickle.dumps(reader.partitions(position, end)))
        assert rows(pickle.loads(pickle.dumps(reader)), parts) == [f"a/{number}"]
        position = end
    # Where it is planned, and where it is read.
    assert len(opened) == 2
    reader.stop()


def test_queries_open_a_directory_once_in_a_process(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def counting(path: Path, **options: Any) -> LogFiles:
        opened.append(path)
        return LogFiles(path, **options)

    monkeypatch.setattr(following, "LogFiles", counting)
    for number in range(4):
        append(database, [f"a/{number}"], at=START + number * SECOND)
        # Planned in one process of Spark's, read in others.
        assert rows_of_batch(tmp_path) == [f"a/{each}" for each in range(number + 1)]
    assert len(opened) == 1


def test_what_a_query_began_to_read_is_there_to_its_end(
    database: RocksDatabase, tmp_path: Path
) -> None:
    append(database, ["a"] * 3_000, at=START)
    database.rotate(START + SECOND)
    append(database, ["b"] * 3_000, at=START + 2 * SECOND)
    reader = data_source(tmp_path, rowsPerPartition="1000").reader(TOPIC)
    assert isinstance(reader, LogReader)
    first, *others = reader.partitions()
    late = reader.partitions()
    found = rows(reader, [first])
    database.drop_generation(1)
    append(database, ["c"], at=START + 3 * SECOND)
    assert found + rows(reader, others) == ["a"] * 3_000 + ["b"] * 3_000
    with pytest.raises(source.SourceError, match="was dropped while it was to be read"):
        rows(reader, late)


def test_a_stream_asks_a_broker_for_one_view_in_a_batch(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    from perdure.pipeline import remote

    asked: list[str] = []
    exchange = remote._HttpExchange

    def counting(*arguments: Any) -> Any:
        asked.append(str(arguments[1]).rpartition("/")[2].partition("?")[0])
        return exchange(*arguments)

    monkeypatch.setattr(remote, "_HttpExchange", counting)
    append(database, ["a"] * 5, at=START)
    with WebProcess(tmp_path / "db") as process:
        options = {"url": process.url, "token": HTTP_TOKEN}
        reader = source.PerdureDataSource(options).streamReader(TOPIC)
        assert isinstance(reader, LogStreamReader)
        start = reader.initialOffset()
        asked.clear()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert reader.reportLatestOffset() == end
        parts = reader.partitions(start, end)
        assert asked == ["log", "slices"]
        # As Spark sends it to a worker, the reader takes no connection along.
        travelled = pickle.loads(pickle.dumps(reader))
        assert rows(travelled, parts) == ["a"] * 5
        # A batch that is planned again, and one that the kept view does not reach.
        asked.clear()
        assert rows(reader, reader.partitions(start, end)) == ["a"] * 5
        assert asked == ["log", "slices", "read"]
        append(database, ["b"] * 2, at=START + 1_000_000)
        reader.latestOffset(end, ReadMaxRows(1))
        kept = reader._kept
        append(database, ["c"], at=START + 2_000_000)
        other = source.PerdureDataSource(options).streamReader(TOPIC)
        assert isinstance(other, LogStreamReader)
        far = other.latestOffset(end, ReadAllAvailable())
        assert kept is not None
        assert rows(reader, reader.partitions(end, far)) == ["b", "b", "c"]
