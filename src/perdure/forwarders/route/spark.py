"""Runs the tasks of a round in Spark."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import msgspec

from perdure.forwarders.route.job import RESULT_DDL, Task, Written, write_batches
from perdure.forwarders.route.rows import OWED_DDL, match_batches
from perdure.pipeline.message_rows import COLUMNS
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.spark_jobs import read_log, source_errors


@final
class SparkRoute:
    """See ``job.Execute``.

    Args:
        spark: a session whose workers see the log and the targets.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __call__(self, options: ReadOptions, task: Task) -> list[Written]:
        matched = read_log(self._spark, options, COLUMNS).mapInArrow(
            partial(match_batches, task.routes), OWED_DDL
        )
        parts = max(2, self._spark.sparkContext.defaultParallelism)
        shares = matched.repartition(parts, "target").sortWithinPartitions("target", "offset")
        written = shares.mapInArrow(partial(write_batches, task), RESULT_DDL)
        with source_errors():
            return [msgspec.convert(row.asDict(), Written) for row in written.collect()]
