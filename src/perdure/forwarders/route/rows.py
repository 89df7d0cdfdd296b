"""Messages between the tasks of the job: rows of the log with whom they are for. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from perdure.forwarders.route.targets import Matcher, Owed, Route
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.pipeline.schema import arrow_schema, ddl

COLUMNS: Final = (
    "topic",
    "payload",
    "client_id",
    "offset",
    "published_at",
    "qos",
    "retain",
    "expires_at",
    "payload_format",
    "content_type",
    "response_topic",
    "correlation_data",
    "user_properties",
)
"""What is read of the log."""

OWED_DDL: Final = f"{ddl(COLUMNS)}, target string, granted tinyint"
OWED: Final = pa.schema([*arrow_schema(COLUMNS), ("target", pa.string()), ("granted", pa.int8())])


def match_batches(routes: Sequence[Route], batches: Iterable[Any]) -> Iterator[Any]:
    """A row for each message and each of its targets; the body of a task.

    Messages of QoS 0 are nobody's: they are in the log for other reasons, if they are.
    """
    matcher = Matcher(routes)
    for batch in batches:
        rows: list[int] = []
        owed: list[Owed] = []
        topics = batch.column("topic").to_pylist()
        for row, (topic, qos) in enumerate(
            zip(topics, batch.column("qos").to_pylist(), strict=True)
        ):
            if qos:
                found = matcher.match(topic)
                rows += [row] * len(found)
                owed += found
        taken = batch.select(list(COLUMNS)).take(pa.array(rows, pa.int64()))
        columns = [
            *taken.columns,
            pa.array([each.key for each in owed], pa.string()),
            pa.array([each.qos for each in owed], pa.int8()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=OWED)


def messages_of(batch: Any) -> Iterator[tuple[str, int, Message]]:
    """Target, granted QoS and message of each row, as the broker itself has them."""
    microseconds = batch.column("published_at").cast(pa.int64()).to_pylist()
    expiries = batch.column("expires_at").cast(pa.int64()).to_pylist()
    for row, published_us, expires_us in zip(
        batch.to_pylist(), microseconds, expiries, strict=True
    ):
        yield (
            row["target"],
            row["granted"],
            Message(
                row["topic"],
                row["payload"],
                row["qos"],
                row["retain"],
                row["client_id"],
                _properties(row),
                expires_us or 0,
                published_us,
                row["offset"],
            ),
        )


def _properties(row: dict[str, Any]) -> bytes:
    pairs = tuple((each["name"], each["value"]) for each in row["user_properties"] or ())
    properties = Properties(
        payload_format_indicator=row["payload_format"],
        content_type=row["content_type"],
        response_topic=row["response_topic"],
        correlation_data=row["correlation_data"],
        user_properties=pairs,
    )
    return forward_properties(properties)
