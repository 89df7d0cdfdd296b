"""A query and a broker that are killed at random, while 5,000 messages a second are published."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.broker import Broker, Publisher

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
]

SEED = os.environ.get("PERDURE_SEED") or str(random.SystemRandom().randrange(10**9))
EVENTS = ["broker", "broker", "query", "query", "query"]
WAIT_S = 60
BURST, PAUSE_S = 250, 0.05
"""5,000 a second, as long as the broker runs and the machine keeps up."""


class Sink:
    """A file for each micro-batch: one that is repeated replaces what it wrote before."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()

    def __call__(self, frame: Any, number: int) -> None:
        import pyarrow.parquet as pq

        partial = self._directory / f".{number}"
        pq.write_table(frame.toArrow(), partial)
        partial.replace(self._directory / f"{number:08}.parquet")

    def wait_for_more(self) -> None:
        """Wait until a micro-batch comes; a query takes its time to begin."""
        before, deadline = self._count(), time.monotonic() + WAIT_S
        while self._count() == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _count(self) -> int:
        return len(list(self._directory.glob("*.parquet")))

    def batches(self) -> list[list[dict[str, Any]]]:
        """The rows of each, in the order of the batches."""
        import pyarrow.parquet as pq

        files = sorted(self._directory.glob("*.parquet"))
        return [pq.read_table(file, partitioning=None).to_pylist() for file in files]


def test_each_message_is_in_the_sink_once_and_in_order(spark: Any, tmp_path: Path) -> None:
    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(SEED)
    sink = Sink(tmp_path / "sink")
    columns = ("offset", "topic", "payload")

    def begin(data: Path, **trigger: Any) -> Any:
        stream = spark.readStream.format("perdure").schema(
            "offset bigint, topic string, payload binary"
        )
        return (
            stream.load(str(data))
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**trigger)
            .start()
        )

    events = choose.sample(EVENTS, len(EVENTS))
    with Broker(tmp_path, hides=False) as broker:
        publisher = Publisher(broker.port, burst=BURST, pause_s=PAUSE_S)
        publisher.start()
        query = begin(broker.data, processingTime="0 seconds")
        for event in events:
            sink.wait_for_more()
            time.sleep(choose.uniform(0, 0.7))
            if event == "broker":
                broker.kill()
                broker.start()
            else:
                # Wherever it is: tasks are killed, nothing is committed.
                query.stop()
                query = begin(broker.data, processingTime="0 seconds")
            assert query.isActive, query.exception()
        publisher.stop()
        query.stop()
        begin(broker.data, availableNow=True).awaitTermination(120)
        log = spark.read.format("perdure").load(str(broker.data)).select(*columns).toArrow()
    batches = sink.batches()
    # Batches follow each other in the order of the log, so the order of each stream is kept.
    found = [offset for rows in batches for offset in sorted(row["offset"] for row in rows)]
    assert found == sorted(log.column("offset").to_pylist())
    assert len(found) == len(set(found))
    wanted = {row["offset"]: (row["topic"], row["payload"]) for row in log.to_pylist()}
    for rows in batches:
        assert all(wanted[row["offset"]] == (row["topic"], row["payload"]) for row in rows)
    numbers = {int(payload[10:-1]) for _, payload in wanted.values()}
    assert publisher.acknowledged <= numbers
    assert len(publisher.acknowledged) > 1_000
    assert len(batches) > len(EVENTS)
