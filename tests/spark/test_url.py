"""Spark reads a running broker over HTTP: from other processes, and through its restarts."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.broker import TOKEN, Broker, Publisher, publish

pytest.importorskip("uvicorn")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
]

PROGRAM = Path(__file__).parent / "programs" / "cluster.py"
SEED = int(os.environ.get("PERDURE_SEED") or 20261120)
RESTARTS = 3


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
        timeout=240,
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


def test_a_stream_through_restarts_of_the_broker(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    taken: dict[int, list[tuple[str, int, int]]] = {}

    def sink(frame: Any, batch: int) -> None:
        rows = frame.select("topic", "offset", "payload").orderBy("offset").collect()
        # A batch that failed is written again; the sink knows it by its number.
        taken[batch] = [
            (row.topic, row.offset, json.loads(bytes(row.payload))["number"]) for row in rows
        ]

    def start() -> Any:
        stream = spark.readStream.format("perdure").options(
            url=broker.url, tokenFile=str(broker.token_file), rowsPerPartition="2000"
        )
        return (
            stream.load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def alive(query: Any) -> Any:
        """The query, or another one where Spark itself had no time for its Python process."""
        error = str(query.exception() or "")
        if not error:
            return query
        assert "connect back" in error, f"seed {SEED}: {error}"
        return start()

    publisher = Publisher(broker.port, pause_s=0.005)
    publisher.start()
    query = start()
    # A query that begins does not wait for a broker; one that runs does.
    deadline = time.monotonic() + 120
    while not taken:
        query = alive(query)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for number in range(RESTARTS):
        time.sleep(chance.uniform(1.0, 2.5))
        if number == 1:
            # The query too.
            query.stop()
            broker.kill()
            restart = threading.Timer(0.5, broker.start)
            restart.start()
            query = start()
            restart.join()
        else:
            broker.kill()
            broker.start()
        query = alive(query)
    time.sleep(1)
    publisher.stop()
    newest = max(row.offset for row in table(spark, broker).select("offset").collect())
    while max(row[1] for rows in taken.values() for row in rows or [("", 0, 0)]) < newest:
        query = alive(query)
        assert time.monotonic() < deadline + 120
        time.sleep(0.05)
    query.stop()
    found = [row for batch in sorted(taken) for row in taken[batch]]
    log = table(spark, broker).select("topic", "offset", "payload").orderBy("offset").collect()
    expected = [(r.topic, r.offset, json.loads(bytes(r.payload))["number"]) for r in log]
    assert found == expected, f"seed {SEED}"
    assert {number for *_, number in found} >= publisher.acknowledged
    assert len(publisher.acknowledged) > 1_000
    assert len(taken) > 1
