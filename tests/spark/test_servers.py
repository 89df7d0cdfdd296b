"""Logs in Redis or PostgreSQL: Spark, streams, an archive and SQL by a broker's address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")
from perdure.cli.main import run
from tests.spark.broker import Broker, publish
from tests.support.database_servers import PostgresServer, RedisServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

COUNT = 4_000


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
    ]
)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    kind: str = request.param
    with RedisServer() if kind == "redis" else PostgresServer(durable=False) as server:
        settings = {"storage.backend": kind, f"storage.{kind}.url": server.url}
        with Broker(tmp_path, hides=False, settings=settings) as running:
            yield running


def numbers(table: Any) -> list[int]:
    """What the payloads of a table count."""
    return [json.loads(row.payload)["number"] for row in table.select("payload").collect()]


def test_spark_streams_an_archive_and_sql(
    spark: Any, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = publish(broker.port, COUNT)
    given = {"url": broker.url, "tokenFile": str(broker.token_file)}
    found = spark.read.format("perdure").options(**given, rowsPerPartition="1024").load()
    assert found.rdd.getNumPartitions() > 1
    assert sorted(numbers(found)) == list(range(first))
    wanted = spark.read.format("perdure").options(**given, topic="plant/3/#").load()
    assert sorted(numbers(wanted)) == list(range(3, first, 7))
    offsets = sorted(row.offset for row in found.select("offset").collect())
    window = {"from": str(offsets[100]), "until": str(offsets[199])}
    some = spark.read.format("perdure").options(**given, **window).load()
    assert sorted(row.offset for row in some.select("offset").collect()) == offsets[100:200]

    def stream() -> int:
        """What is there and was not read yet, in small batches; how many batches."""
        source = spark.readStream.format("perdure").options(**given, maxOffsetsPerTrigger="1500")
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "streamed"))
        )
        query.awaitTermination()
        return sum(1 for each in query.recentProgress if each.numInputRows)

    assert stream() >= COUNT // 1500
    broker.kill()
    broker.start()
    count = first + publish(broker.port, 500)
    stream()
    streamed = spark.read.parquet(str(tmp_path / "streamed"))
    assert sorted(numbers(streamed)) == sorted([*range(first), *range(count - first)])

    where = ["--url", broker.url, "--token-file", str(broker.token_file)]
    to = ["--to", str(tmp_path / "to")]
    archive = ["--once", "--master", "none", "--format", "parquet", "--no-learned"]
    assert run(["pipeline", "archive", *where, *to, *archive]) == 0
    for table in ("log", "messages"):
        capsys.readouterr()
        query = f'select count(*) as n, count(distinct "offset") as d from {table}'
        assert run(["sql", *where, *to, "--json", query]) == 0
        assert json.loads(capsys.readouterr().out) == [{"n": count, "d": count}]
