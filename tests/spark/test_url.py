"""Spark reads a running broker over HTTP, from other processes; ``test_stream_kill`` kills both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.broker import TOKEN, Broker, publish
from tests.support.bounds import HANG_S

pytest.importorskip("pyspark")
pytest.importorskip("uvicorn")
import pyarrow.parquet as pq

from perdure.pipeline.jobs.archive import Archive, Wanted
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import parse_options
from perdure.pipeline.sinks.parquet import ParquetSink
from perdure.pipeline.spark_jobs import SparkExecute
from perdure.pipeline.tables import parse_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]

PROGRAM = Path(__file__).parent / "programs" / "cluster.py"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as running:
        yield running


def table(spark: Any, broker: Broker, **options: str) -> Any:
    named = {"url": broker.url, "tokenFile": str(broker.token_file), **options}
    return spark.read.format("perdure").options(**named).load()


def test_a_cluster_that_shares_nothing_with_the_broker(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    count = publish(broker.port, 6_000)
    if broker.is_hidden:
        assert not any(broker.data.iterdir())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, str(PROGRAM), broker.url, str(broker.token_file), str(tmp_path)]
    done = subprocess.run(
        [*command, str(count)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["processes"] == 2
    assert found["partitions"] >= 4
    assert found["rows"] == sum(found["batches"]) >= count
    assert found["complete"]
    assert found["chosen"] == [17, 23, 4_000]
    assert found["one"] >= count // 7
    assert max(found["batches"]) <= 2_000


def test_errors_are_one_clear_line(spark: Any, broker: Broker) -> None:
    def problem(**options: str) -> str:
        with pytest.raises(Exception, match="perdure: ") as caught:
            spark.read.format("perdure").options(**options).load().count()
        (line,) = (
            line for line in str(caught.value).splitlines() if "SourceError: perdure: " in line
        )
        return line

    assert "refused the token" in problem(url=broker.url, token="x" * 40)
    assert "wants a token" in problem(url=broker.url)
    assert "cannot reach http://127.0.0.1:1: Connection refused" in problem(
        url="http://127.0.0.1:1", token=TOKEN
    )
    assert "where: t.$near: no such operator" in problem(
        url=broker.url, token=TOKEN, where='{"t":{"$near":1}}'
    )
    mqtt = f"http://127.0.0.1:{broker.port}"
    assert "closed the connection without an answer" in problem(url=mqtt, token=TOKEN)


def test_an_archive_of_what_a_broker_serves(spark: Any, broker: Broker, tmp_path: Path) -> None:
    count = publish(broker.port, 2_000)
    given = {"url": broker.url, "tokenFile": str(broker.token_file), "rowsPerPartition": "1024"}
    options = parse_options(given, 0)
    with opened(options) as index:
        sink = ParquetSink(tmp_path / "to", index.database_id)
    (tmp_path / "to").mkdir()
    wanted = Wanted((parse_table("plant=plant/{machine}/metric/{metric}"),), format="parquet")
    directory = tmp_path / "to"
    job = Archive(options, sink, wanted, directory=directory, execute=SparkExecute(spark))
    assert job.run_round().rows >= count
    # The next round waits for a broker that is being restarted.
    broker.kill()
    restart = threading.Timer(1, broker.start)
    restart.start()
    assert job.run_round().rows == 0
    restart.join()
    found = [row for file in sink.files("plant") for row in pq.read_table(file.path).to_pylist()]
    numbers = [row["number"] for row in found]
    assert sorted(numbers) == sorted(set(numbers)) == list(range(len(numbers)))
    assert {row["machine"] for row in found} == {str(number) for number in range(7)}
