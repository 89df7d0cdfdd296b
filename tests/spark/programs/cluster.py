"""A cluster of two worker processes reads a broker through HTTP, whole and as a stream.

    python cluster.py URL TOKEN_FILE HOME COUNT

Prints a line of JSON with what it found.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.pipeline.session import build
from perdure.pipeline.source import PerdureDataSource


def spark_home(home: Path) -> Path:
    """Spark as it is installed, where its workers can leave their files."""
    import pyspark

    made = home / "spark"
    made.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (made / each.name).symlink_to(each)
    return made


def where_it_runs(batches: Iterator[Any]) -> Iterator[Any]:
    """One row for each task: its process and how many rows it had."""
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pylist([{"process": os.getppid(), "rows": rows}])


def main() -> None:
    """Read, count, tell."""
    url, token_file, home, count = sys.argv[1:]
    os.environ["SPARK_HOME"] = str(spark_home(Path(home)))
    spark = build(
        master="local-cluster[2,1,1024]",
        memory="768m",
        log_file=Path(home, "cluster.log"),
        settings={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(Path(home, "local")),
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        },
    )
    spark.dataSource.register(PerdureDataSource)
    options = {"url": url, "tokenFile": token_file, "rowsPerPartition": "1024"}
    log = spark.read.format("perdure").options(**options).load()
    tasks = log.mapInArrow(where_it_runs, "process bigint, rows bigint").collect()
    numbers = sorted(
        json.loads(bytes(row.payload))["number"] for row in log.select("payload").collect()
    )
    one = spark.read.format("perdure").options(topic="plant/3/#", **options).load().count()
    where = '{"number":{"$in":[17,23,4000]}}'
    chosen = spark.read.format("perdure").options(where=where, **options).load().collect()
    taken: list[int] = []
    stream = spark.readStream.format("perdure").options(maxRowsPerTrigger="2000", **options)
    query = (
        stream.load()
        .writeStream.foreachBatch(lambda frame, _: taken.append(frame.count()))
        .option("checkpointLocation", str(Path(home, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    found = {
        "processes": len({row.process for row in tasks}),
        "partitions": len(tasks),
        "rows": sum(row.rows for row in tasks),
        "complete": set(numbers) >= set(range(int(count))),
        "one": one,
        "chosen": sorted({json.loads(bytes(row.payload))["number"] for row in chosen}),
        "batches": taken,
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
