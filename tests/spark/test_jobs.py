"""Jobs in Spark: the archive's tasks, and statistics that equal a count by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import StorageUnavailable
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

HOUR = 3_600 * SECOND


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


def test_archive(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    from perdure.pipeline.jobs.archive import Archive, Wanted
    from perdure.pipeline.lake.catalogs import local_catalog
    from perdure.pipeline.lake.lake import NAMESPACE
    from perdure.pipeline.sinks.iceberg import IcebergSink
    from perdure.pipeline.spark_jobs import SparkExecute
    from perdure.pipeline.tables import parse_table

    written = append(database, [f"d/{n % 9}/t" for n in range(3_000)] + ["x"], at=START)
    root = tmp_path / "tables"
    root.mkdir()
    job = Archive(
        ReadOptions(str(tmp_path / "db"), rows_per_partition=1_024),
        IcebergSink(local_catalog(root), database.format.database_id),
        Wanted((parse_table("devices=d/{device}/t"),)),
        directory=root,
        execute=SparkExecute(spark),
    )
    done = job.run_round()
    assert (done.rows, done.is_last) == (3_001, True)
    assert done.files > 2
    assert job.run_round().rows == 0
    scan = (
        local_catalog(root)
        .load_table((NAMESPACE, "devices"))
        .scan(row_filter="device = '4'", selected_fields=("offset", "payload"))
    )
    expected = [(m.offset, m.payload) for m in written if m.topic == "d/4/t"]
    assert sorted((r["offset"], r["payload"]) for r in scan.to_arrow().to_pylist()) == expected
    files = dataset.dataset([*root.rglob("data/*.parquet")])
    assert files.count_rows() == len(files.to_table().column("offset").unique()) == 3_001


def test_a_drop_before_the_tasks_are_planned_is_no_round(
    spark: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    from perdure.errors import ConfigError
    from perdure.pipeline.archive_state import load_state
    from perdure.pipeline.jobs.archive import Archive, Wanted
    from perdure.pipeline.jobs.archive_files import WriteTask, Written
    from perdure.pipeline.sinks.parquet import ParquetSink
    from perdure.pipeline.spark_jobs import SparkExecute

    append(database, ["x"] * 10, at=START)
    database.rotate(START + SECOND)
    kept = append(database, ["x"] * 10, at=START + 2 * SECOND)
    execute = SparkExecute(spark)

    def late(options: ReadOptions, task: WriteTask) -> list[Written]:
        if database.generations()[0].generation == 1:
            database.drop_generation(1)
        return execute(options, task)

    def archive(*, skip: bool) -> Archive:
        options = ReadOptions(str(tmp_path / "db"), skip_data_loss=skip)
        sink = ParquetSink(tmp_path, database.format.database_id)
        return Archive(options, sink, Wanted(learns=False), directory=tmp_path, execute=late)

    with pytest.raises(ConfigError, match="were dropped"):
        archive(skip=False).run_round()
    state = load_state(tmp_path)
    assert state is not None
    assert state.position.offset < START
    done = archive(skip=True).run_round()
    assert (done.rows, done.gap is not None) == (10, True)
    assert done.position.offset == kept[-1].offset


def test_what_the_source_says_arrives_as_our_own_error(spark: Any, tmp_path: Path) -> None:
    from perdure.pipeline.spark_jobs import read_log, source_errors

    with pytest.raises(StorageUnavailable, match="holds no database"), source_errors():
        read_log(spark, ReadOptions(str(tmp_path))).count()


def test_statistics(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    from perdure.pipeline.jobs import stats
    from perdure.pipeline.jobs.stats_here import HereEngine
    from perdure.pipeline.jobs.stats_report import render
    from perdure.pipeline.spark_jobs import SparkEngine, read_log

    options = ReadOptions(str(tmp_path / "db"))

    def collected(top: int) -> stats.Statistics:
        """What both engines say."""
        with HereEngine(options) as here:
            found = stats.collect(here, top=top)
        # All in Spark; counted in Spark, and asked here, with a size that is known or not.
        for here_rows_max, rows in ((0, None), (10**6, None), (10**6, 10**4)):
            log = read_log(spark, options, stats.COLUMNS)
            with SparkEngine(spark, here_rows_max=here_rows_max, rows=rows, log=log) as engine:
                assert stats.collect(engine, top=top) == found
                assert engine.is_here is (here_rows_max > 0)
        return found

    # client-0 to client-2 in turn, a message each second; then client-0 alone, hours later.
    append(database, ["a/b"] * 60, at=START, step=SECOND)
    append(database, ["<x>"], at=START + 3 * HOUR)
    found = collected(5)
    page = render(found, title="Traffic")
    assert "&lt;x&gt;" in page
    assert "<x>" not in page
    assert page.count("<rect") == 2
    # Gaps of many lengths, ties, and more clients and structures than are shown.
    rng = random.Random(7)
    topics = [f"r/{rng.randrange(40)}/{rng.randrange(3)}" for _ in range(2_000)]
    for number, topic in enumerate(topics):
        at = START + 4 * HOUR + number * SECOND // 3 + rng.randrange(SECOND)
        append(database, [topic] * rng.randrange(1, 3), at=at)
    assert collected(2).totals["messages"] > 2_061
