"""Spark Connect reads the log: in a directory, over HTTP, and over HTTP as a stream.

    python connect.py DATA URL TOKEN_FILE HOME

Starts a server of its own, and prints a line of JSON with what it found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from perdure.pipeline.session import SETTINGS
from perdure.pipeline.source import PerdureDataSource

COLUMNS = ("offset", "topic", "payload")


def main() -> None:
    """Read, count, tell."""
    data, url, token_file, home = sys.argv[1:]
    builder = SparkSession.builder.remote("local[2]")
    settings = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "768m",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(Path(home, "local")),
        "spark.sql.warehouse.dir": str(Path(home, "warehouse")),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(PerdureDataSource)
    remote = {"url": url, "tokenFile": token_file}

    def rows(**options: str) -> list[tuple[Any, ...]]:
        log = spark.read.format("perdure").options(**options).load()
        found = log.select(*COLUMNS).orderBy("offset").collect()
        return [(row.offset, row.topic, bytes(row.payload)) for row in found]

    stream = spark.readStream.format("perdure").options(**remote).load()
    query = (
        stream.select(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(Path(home, "out")))
        .option("checkpointLocation", str(Path(home, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    streamed = spark.read.parquet(str(Path(home, "out"))).orderBy("offset").collect()
    there = rows(**remote)
    try:
        rows(url=url, token="x" * 40)
        problem = ""
    except Exception as error:  # noqa: BLE001 - whatever Connect makes of it
        problem = str(error)
    told = {
        "is_connect": type(spark).__module__.startswith("pyspark.sql.connect"),
        "rows": len(there),
        "equal": there == rows(path=data),
        "streamed": [row.offset for row in streamed] == [row[0] for row in there],
        "chosen": len(rows(topic="plant/3/#", **remote)),
        "problem": [line for line in problem.splitlines() if "SourceError: perdure: " in line],
    }
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
