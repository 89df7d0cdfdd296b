"""Runs the tasks of a round in this process, one after the other: without Spark and Java."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa

from perdure.forwarders.route.job import Task, TooLarge, Written, write_batches
from perdure.forwarders.route.rows import matched, owed_batches
from perdure.forwarders.route.targets import Matcher, Owed
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import opened
from perdure.pipeline.log_source import plan, read
from perdure.pipeline.message_rows import COLUMNS
from perdure.pipeline.options import ReadOptions

ROWS_PER_ROUND: Final = 100_000
"""Messages of a round; they are in memory once, however many they are for."""
BYTES_MAX: Final = 64 * 1024 * 1024
OWED_MAX: Final = 1_000_000
"""Of a round of more than one message: what they take, and how many entries they make."""


def route_here(options: ReadOptions, task: Task) -> list[Written]:
    """See ``job.Execute``."""
    messages, rows, owed = _matched(options, task)
    if not rows:
        return []
    offsets = messages.column("offset").to_pylist()
    order = sorted(range(len(rows)), key=lambda at: (owed[at].key, offsets[rows[at]]))
    batches = owed_batches(messages, [rows[at] for at in order], [owed[at] for at in order])
    return [
        msgspec.convert(row, Written)
        for result in write_batches(task, batches)
        for row in result.to_pylist()
    ]


def _matched(options: ReadOptions, task: Task) -> tuple[Any, list[int], list[Owed]]:
    """The messages of a range, and which of them are for whom.

    Raises:
        TooLarge: there is too much of it.
    """
    with opened(options) as files:
        parts = plan(files, options, Narrowing())
    matcher = Matcher(task.routes)
    batches: list[Any] = []
    rows: list[int] = []
    owed: list[Owed] = []
    count = size = 0
    for part in parts:
        for batch in read(part, list(COLUMNS)):
            own, found = matched(matcher, batch)
            rows += [count + row for row in own]
            owed += found
            batches.append(batch)
            count += batch.num_rows
            size += batch.nbytes
            if count > 1 and (size > BYTES_MAX or len(rows) > OWED_MAX):
                raise TooLarge
    if not rows:
        return None, rows, owed
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0], rows, owed
