"""Messages between the tasks of the job: rows of the log with whom they are for. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from perdure.forwarders.route.targets import Matcher, Owed, Route
from perdure.model import Message
from perdure.pipeline.message_rows import COLUMNS, messages
from perdure.pipeline.schema import arrow_schema, ddl

OWED_DDL: Final = f"{ddl(COLUMNS)}, target string, granted tinyint"
OWED: Final = pa.schema([*arrow_schema(COLUMNS), ("target", pa.string()), ("granted", pa.int8())])


BATCH_BYTES: Final = 8 * 1024 * 1024
"""Of rows that are made at a time, about: a message may be for any number of targets."""
_ROW_BYTES: Final = 100
"""Of a row beside its payload, about."""


def match_batches(routes: Sequence[Route], batches: Iterable[Any]) -> Iterator[Any]:
    """A row for each message and each of its targets; the body of a task."""
    matcher = Matcher(routes)
    for batch in batches:
        rows, owed = matched(matcher, batch)
        yield from owed_batches(batch, rows, owed)


def matched(matcher: Matcher, batch: Any) -> tuple[list[int], list[Owed]]:
    """Rows of a batch, ascending, and whom each is for.

    Messages of QoS 0 are nobody's: they are in the log for other reasons, if they are.
    """
    rows: list[int] = []
    owed: list[Owed] = []
    pairs = zip(batch.column("topic").to_pylist(), batch.column("qos").to_pylist(), strict=True)
    for row, (topic, qos) in enumerate(pairs):
        if qos:
            found = matcher.match(topic)
            rows += [row] * len(found)
            owed += found
    return rows, owed


def owed_batches(read: Any, rows: Sequence[int], owed: Sequence[Owed]) -> Iterator[Any]:
    """Rows of a batch of messages, with whom each is for, in batches of ``BATCH_BYTES``."""
    sizes = pc.binary_length(read.column("payload")).to_pylist()
    begin = size = 0
    for end, row in enumerate(rows, 1):
        size += sizes[row] + _ROW_BYTES
        if size >= BATCH_BYTES or end == len(rows):
            yield _batch(read, rows[begin:end], owed[begin:end])
            begin, size = end, 0


def _batch(read: Any, rows: Sequence[int], owed: Sequence[Owed]) -> Any:
    columns = [
        *read.select(list(COLUMNS)).take(pa.array(rows, pa.int64())).columns,
        pa.array([each.key for each in owed], pa.string()),
        pa.array([each.qos for each in owed], pa.int8()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OWED)


def messages_of(batch: Any) -> Iterator[tuple[str, int, Message]]:
    """Target, granted QoS and message of each row, as the broker itself has them."""
    targets, granted = (batch.column(each).to_pylist() for each in ("target", "granted"))
    return zip(targets, granted, messages(batch), strict=True)
