"""A streaming query that writes a file for each micro-batch, until it is killed.

    python stream.py OPTIONS HOME

``OPTIONS`` are those of the source, as a JSON object. The files are ``HOME/sink/NUMBER.parquet``:
a micro-batch that is repeated replaces what it wrote before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from perdure.pipeline.session import build

COLUMNS = "offset bigint, topic string, payload binary"


def main() -> None:
    """Begin, or go on where an earlier run was killed."""
    options, home = json.loads(sys.argv[1]), Path(sys.argv[2])
    spark = build(
        master="local[2]",
        memory="768m",
        log_file=home / "stream.log",
        settings={
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.local.dir": str(home / "local"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        },
    )

    def sink(frame: Any, number: int) -> None:
        partial = home / "sink" / f".{number}"
        pq.write_table(frame.toArrow(), partial)
        partial.replace(home / "sink" / f"{number:08}.parquet")

    stream = spark.readStream.format("perdure").schema(COLUMNS).options(**options).load()
    writer = stream.writeStream.foreachBatch(sink).option(
        "checkpointLocation", str(home / "checkpoint")
    )
    writer.trigger(processingTime="0 seconds").start().awaitTermination()


if __name__ == "__main__":
    main()
