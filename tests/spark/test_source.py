"""The data source inside Spark: batch, pushdown, pruning, streams that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.pipeline.live import state_of
from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.matching import matches
from tests.unit.pipeline.logs import SECOND, START, append, open_log

# Starting Java, and a Python worker for each new use, takes seconds on a busy machine.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

TOPICS = [f"d/{n % 7}/{n % 3}" for n in range(300)] + ["$SYS/x", "d", "/", "d//t"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


def table(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("perdure").options(**options).load(str(path / "db"))


def test_batch(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    written = append(database, TOPICS, at=START)
    rows = table(spark, tmp_path).orderBy("offset").collect()
    assert [row.offset for row in rows] == [message.offset for message in written]
    assert [row.topic for row in rows] == TOPICS
    first = rows[0].asDict()
    assert bytes(first.pop("payload")) == b"0"
    assert int(first.pop("published_at").timestamp()) == START // SECOND
    assert first == {
        "topic": "d/0/0",
        "client_id": "client-0",
        "offset": START,
        "qos": 1,
        "retain": False,
        "expires_at": None,
        "payload_format": None,
        "content_type": None,
        "response_topic": None,
        "correlation_data": None,
        "user_properties": None,
        "generation": 1,
        "structure": "d/0/0",
    }
    for topic_filter in ("d/#", "d/+/2", "+/+", "#", "$SYS/#"):
        found = table(spark, tmp_path, topic=topic_filter).select("topic").collect()
        expected = [topic for topic in TOPICS if matches(topic_filter, topic)]
        assert sorted(row.topic for row in found) == sorted(expected)


CONDITIONS = (
    "topic = 'd/1/2' and offset > 1700000000000000",
    "topic in ('d/1/1', 'd', 'x') or qos = 2",
    "topic like 'd/3/%'",
    "published_at between '2023-11-14 22:13:20.1' and '2023-11-14 22:13:20.2'",
    "offset <= 1700000000010000 and not topic = 'd'",
)


def test_conditions_narrow_and_columns_are_pruned(
    spark: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    append(database, TOPICS, at=START)
    shared = table(spark, tmp_path)
    rows = spark.createDataFrame(shared.collect(), shared.schema)
    for condition in CONDITIONS:
        expected = rows.where(condition).count()
        assert expected
        assert table(spark, tmp_path, pushdown="once").where(condition).count() == expected
        # One load() for many queries is the usual way to work, so it must be right.
        assert shared.where(condition).count() == expected
    both = [shared.where(condition).select("topic") for condition in CONDITIONS[:2]]
    assert both[0].union(both[1]).count() == both[0].count() + both[1].count()
    pruned = spark.read.format("perdure").schema("qos tinyint, topic string")
    assert pruned.load(str(tmp_path / "db")).where("topic = '/'").collect() == [(1, "/")]


def test_content_filters(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    payloads = [b'{"t":%d,"unit":"C"}' % n for n in range(40)] + [b"no json"]
    append(database, ["a/b"] * 41, at=START, payloads=payloads)
    warm = table(spark, tmp_path, where='{"t":{"$gte":30},"unit":"C"}')
    rows = warm.selectExpr("get_json_object(cast(payload as string), '$.t') as t").collect()
    assert sorted(int(row.t) for row in rows) == list(range(30, 40))
    assert table(spark, tmp_path, where='{"t":{"$exists":false}}').count() == 1
    with pytest.raises(Exception, match=r"perdure: where: t\.\$near: no such operator"):
        table(spark, tmp_path, where='{"t":{"$near":1}}').count()


def test_errors_say_what_to_do(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"perdure: unknown option 'topik' \(did you mean topic"):
        table(spark, tmp_path, topik="a").count()
    with pytest.raises(Exception, match=r"perdure: .* holds no database"):
        table(spark, tmp_path / "nowhere").count()


def test_a_stream_that_fails_goes_on_without_gap_or_repeat(
    spark: Any, database: RocksDatabase, tmp_path: Path
) -> None:
    written = append(database, ["a", "b/c"] * 100, at=START)
    taken: dict[int, list[int]] = {}
    failing = {1}

    def sink(frame: Any, batch: int) -> None:
        # What a sink saw before it failed is written again by the same batch.
        taken[batch] = [row.offset for row in frame.select("offset").collect()]
        if batch in failing:
            failing.remove(batch)
            raise RuntimeError("the sink has failed")

    def run() -> None:
        stream = (
            spark.readStream.format("perdure")
            .option("maxRowsPerTrigger", "90")
            .load(str(tmp_path / "db"))
        )
        query = (
            stream.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        if query.exception() is None:
            state = state_of(query.lastProgress)
            assert state is not None
            assert state.behind_s == 0

    with pytest.raises(Exception, match="the sink has failed"):
        run()
    database.rotate(START + 100 * SECOND)
    written += append(database, ["a"] * 50, at=START + 200 * SECOND)
    run()
    assert max(map(len, taken.values())) <= 90
    found = [offset for batch in sorted(taken) for offset in sorted(taken[batch])]
    assert found == [message.offset for message in written]


def test_options_of_kafkas_source(spark: Any, database: RocksDatabase, tmp_path: Path) -> None:
    written = append(database, TOPICS * 20, at=START)
    first, last = written[100].offset, written[4_000].offset
    part = table(
        spark,
        tmp_path,
        startingOffsets=str(first),
        endingOffsets=str(last),
        minPartitions="3",
    )
    assert part.rdd.getNumPartitions() >= 3
    assert part.count() == 3_901
    with pytest.raises(Exception, match="startingOffsets latest is for streams"):
        table(spark, tmp_path, startingOffsets="latest").count()
    seen: list[int] = []
    options = {
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "100",
        "failOnDataLoss": "false",
    }

    def run() -> None:
        query = (
            spark.readStream.format("perdure")
            .options(**options)
            .load(str(tmp_path / "db"))
            .writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert sum(seen) == 0  # it began at the end
    append(database, TOPICS, at=START + 60 * SECOND)
    run()
    assert sum(seen) == len(TOPICS)
    assert max(seen) <= 100
