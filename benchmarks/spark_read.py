"""Spark reads the log, beside the same rows in Parquet; whole, one percent by filter, by time.

    python benchmarks/spark_read.py [--messages 1000000] [--json]

Records messages of 10,000 devices with 4 metrics each, as ``log_replay`` does. Times are the best
of three, from a query's start to its end, with two cores; what is read goes nowhere (Spark's sink
``noop``). The decoder alone is measured too, in processor time of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import log_replay

from perdure.pipeline.decode import Names, decode_page
from perdure.pipeline.log_source import PAGE_ROWS
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.session import build
from perdure.storage.rocksdb.bulk import LogFiles

REPEATS = 3


def decoder_alone(path: Path) -> float:
    """Rows per second of processor time, all columns, without Spark."""
    files = LogFiles(path)
    begun, rows = time.process_time(), 0
    for part in files.slices((), 0, 2**62, rows_max=10**9):
        layout = files.layout(part.generation)
        names = Names(part.generation, layout.topic, layout.pattern)
        for page in files.pages((), part, rows_max=PAGE_ROWS):
            rows += decode_page(page, list(BY_NAME), names).num_rows
    taken = time.process_time() - begun
    files.close()
    return rows / taken


def best(query: Callable[[], Any]) -> float:
    """Shortest time of a few runs, seconds."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        query().write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter() - begun)
    return min(times)


def measure(spark: Any, path: Path, parquet: Path, count: int) -> dict[str, float]:
    """Times of all queries, seconds."""
    log = str(path)

    def read(**options: str) -> Any:
        return spark.read.format("perdure").options(**options).load(log)

    first = log_replay.START_US + count * 500
    window = {"from": str(first), "until": str(first + count * 10)}
    devices = json.dumps([f"devices/{number * 97}/#" for number in range(100)])
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    read().repartition(2).write.mode("overwrite").parquet(str(parquet))
    return {
        "full": best(read),
        "topic_and_payload": best(
            lambda: spark.read.format("perdure").schema("topic string, payload binary").load(log)
        ),
        "one_percent_by_filter": best(lambda: read(topic=devices)),
        "one_device": best(lambda: read(topic="devices/42/#")),
        "one_percent_by_time": best(lambda: read(**window)),
        "parquet_full": best(lambda: spark.read.parquet(str(parquet))),
        "empty_query": best(lambda: read(topic="no/such/topic")),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    import perdure

    os.environ["PYTHONPATH"] = str(Path(perdure.__file__).parents[1])
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        path = Path(directory, "db")
        log_replay.record(path, "skipscan", arguments.messages)
        alone = decoder_alone(path)
        spark = build(master="local[2]", log_file=Path(directory, "spark.log"))
        found = measure(spark, path, Path(directory, "parquet"), arguments.messages)
        spark.stop()
    if arguments.json:
        print(json.dumps({"decoder_rows_per_cpu_s": alone, **found}))
        return
    print(f"decoder alone, one core      {alone / 1e6:8.2f} M rows/s of processor time")
    for name, seconds in found.items():
        rate = f"{arguments.messages / seconds / 1e6:8.2f} M rows/s" if "full" in name else ""
        print(f"{name:28} {seconds:8.3f} s  {rate}  {found['full'] / seconds:6.1f}x")


if __name__ == "__main__":
    main()
