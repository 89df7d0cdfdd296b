"""What is in a partition of Kafka, counted while it is read: a topic may be larger than memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from perdure.bench.stamp import STAMP

AT_ONCE: Final = 10_000
STALLED_S: Final = 120.0
"""Without a record for so long the count is given up."""


@final
class TopicCount(msgspec.Struct):
    """What was found.

    Attributes:
        records: all of them.
        twice: those whose place in the log is not above that of the one before.
        out_of_order: those that a publisher sent before the one before.
    """

    records: int = 0
    twice: int = 0
    out_of_order: int = 0


def count_topic(
    bootstrap: str, topic: str, *, tell: Callable[[int, int], None] = lambda found, end: None
) -> TopicCount:
    """Count partition 0 of a topic that an application's forwarder or ``route`` has written.

    Args:
        bootstrap: of the Kafka.
        topic: which.
        tell: is told after each batch where it is, and where the end is; both count the
            transactions' own records too.

    Raises:
        TimeoutError: nothing comes although the end is not there.
        KafkaException: Kafka says so.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "count",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "queued.max.messages.kbytes": 65_536,
        }
    )
    found, last, counters = TopicCount(), -1, dict[tuple[int, int], int]()
    part = TopicPartition(topic, 0, 0)
    try:
        _, end = consumer.get_watermark_offsets(part, timeout=30.0)
        consumer.assign([part])
        place, moved = 0, time.monotonic()
        while place < end:
            for record in consumer.consume(AT_ONCE, timeout=1.0):
                if record.error() is not None:
                    raise KafkaException(record.error())
                offset = _offset(record)
                found.records += 1
                found.twice += offset <= last
                last = max(last, offset)
                tag, stream, counter, _ = STAMP.unpack_from(record.value())
                found.out_of_order += counters.get((tag, stream), -1) >= counter
                counters[tag, stream] = counter
            now = max(consumer.position([part])[0].offset, 0)
            if now > place:
                place, moved = now, time.monotonic()
                tell(place, end)
            elif time.monotonic() - moved > STALLED_S:
                raise TimeoutError(f"{topic} stands at {place} of {end}")
    finally:
        consumer.close()
    return found


def _offset(record: Any) -> int:
    """Of the message in the log."""
    for name, value in record.headers():
        if name == "perdure.offset":
            return int(value)
    raise ValueError("a record without perdure.offset")
