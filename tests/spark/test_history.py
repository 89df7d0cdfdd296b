"""History in Spark: a query and a stream begin in the archive and end in the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


def test_history(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
    from perdure.pipeline.lake.lake import Lake
    from perdure.pipeline.sinks.opening import open_sink

    to = tmp_path / "to"
    to.mkdir()
    written = [
        message.offset
        for message in append(database, [f"d/{n % 9}/t" for n in range(300)], at=START)
    ]
    database.rotate(START + 100 * SECOND)
    written += [m.offset for m in append(database, ["d/1/t"] * 20, at=START + 200 * SECOND)]
    job = Archive(
        _options(tmp_path),
        open_sink(Lake(str(to)), database.format.database_id),
        Wanted(),
        directory=to,
        execute=execute_here,
    )
    while job.run_round().rows:
        pass
    database.drop_generation(1)
    written += [m.offset for m in append(database, ["d/2/t"] * 10, at=START + 300 * SECOND)]

    def source(reader: Any) -> Any:
        return reader.format("perdure").option("catalog", str(to))

    table = source(spark.read).load(str(tmp_path / "db"))
    assert sorted(row.offset for row in table.select("offset").collect()) == written
    row = table.where("topic = 'd/4/t'").orderBy("offset").first()
    assert (row.offset, row.qos, row.structure) == (written[4], 1, "d/+/t")
    taken: list[int] = []
    stream = source(spark.readStream).option("maxRowsPerTrigger", "80").load(str(tmp_path / "db"))
    query = (
        stream.select("offset")
        .writeStream.foreachBatch(
            lambda frame, _: taken.extend(sorted(row.offset for row in frame.collect()))
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert taken == written


def _options(path: Path) -> Any:
    from perdure.pipeline.options import ReadOptions

    return ReadOptions(str(path / "db"), rows_per_partition=100)
