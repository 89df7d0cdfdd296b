"""Runs the tasks of a round in this process, one after the other: without Spark and Java."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from perdure.forwarders.route.job import Task, Written, write_batches
from perdure.forwarders.route.rows import COLUMNS, OWED, match_batches
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import opened
from perdure.pipeline.log_source import plan, read
from perdure.pipeline.options import ReadOptions

ROWS_PER_ROUND: Final = 100_000
"""They are in memory all at once, each for each of its targets."""
_ROWS: Final = 10_000


def route_here(options: ReadOptions, task: Task) -> list[Written]:
    """See ``job.Execute``."""
    with opened(options) as files:
        parts = plan(files, options, Narrowing())
    batches = [
        batch for part in parts for batch in match_batches(task.routes, read(part, list(COLUMNS)))
    ]
    owed = pa.Table.from_batches(batches, schema=OWED)
    owed = owed.sort_by([("target", "ascending"), ("offset", "ascending")])
    return [
        msgspec.convert(row, Written)
        for result in write_batches(task, owed.to_batches(max_chunksize=_ROWS))
        for row in result.to_pylist()
    ]
