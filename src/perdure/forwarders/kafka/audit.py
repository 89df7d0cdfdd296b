"""Proves that a Kafka topic has every message of the log that its forwarder is for, once, in order.

=============  ============================================================================
kind           what is wrong
=============  ============================================================================
kafka.missing  the log has it, and the topic, which goes further, has not
kafka.repeated two records are of one message
kafka.order    in a partition a record of an earlier message comes after one of a later
kafka.unknown  a record is of no message that the log has and the forwarder selects
=============  ============================================================================

Only committed records of this forwarder count. What it has not forwarded yet is its lag and no
finding; messages with an expiry may have expired before. What Kafka or the log has dropped by
retention is not compared. The settings are those of now: after a change of filters look at what
came since (``--from``).

Invariant: a forwarder whose target took everything has no findings, also while both go on.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from perdure.config.schema import KafkaForwarderConfig
from perdure.errors import TargetUnavailable
from perdure.forwarders.kafka.settings import consumer_options, shared_options
from perdure.forwarders.kafka.topic import record_offset

COLUMNS: Final = ("offset", "qos", "expires_at")
"""Of the log, which are compared."""

Add = Callable[[str, str, str], None]
"""Takes a finding: kind, subject, detail."""

_POLL_RECORDS: Final = 1_000
_POLL_S: Final = 0.1


@final
class TopicAudit(NamedTuple):
    """What was compared.

    Attributes:
        name: of the forwarder.
        records: of it in the topic.
        messages: that the log has for them.
        lag: messages that the log has after the topic's last.
    """

    name: str
    records: int
    messages: int
    lag: int


class _Records(NamedTuple):
    """Offsets in the log of the records of each partition, in the partition's order."""

    partitions: dict[int, Any]
    is_whole: bool


def audit_topic(
    name: str,
    settings: KafkaForwarderConfig,
    writer: str,
    read_log: Callable[[], Iterable[Any]],
    add: Add,
) -> TopicAudit:
    """Compare a topic with the log.

    Args:
        name: of the forwarder.
        settings: of the forwarder.
        writer: what its records say of who wrote them.
        read_log: the messages that its filters select, as batches with ``COLUMNS``; called when the
            topic was read, so that the log is not behind it.
        add: takes findings.

    Raises:
        TargetUnavailable: Kafka does not answer, or there is no such topic.
        ConfigError: an option for Kafka cannot be used.
    """
    records = _read_topic(name, settings, writer)
    expected, optional = _read_log(read_log(), with_qos_0=settings.qos0)
    all_records: Any = np.concatenate([np.empty(0, np.int64), *records.partitions.values()])
    for number, offsets in sorted(records.partitions.items()):
        highest: Any = np.maximum.accumulate(offsets)
        for at in np.flatnonzero(offsets[1:] < highest[:-1]).tolist():
            add(
                "kafka.order",
                f"{settings.topic}[{number}]",
                f"offset {offsets[at + 1]} comes after {highest[at]}",
            )
    known, counts = np.unique(all_records, return_counts=True)
    for offset in known[counts > 1].tolist():
        add("kafka.repeated", settings.topic, f"offset {offset} is there more than once")
    if not len(known):
        return TopicAudit(name, 0, 0, len(expected))
    first, last = int(known[0]), int(known[-1])
    if settings.start == "earliest" and records.is_whole:
        first = 0
    within = expected[(expected >= first) & (expected <= last)]
    for offset in np.setdiff1d(within, known, assume_unique=True).tolist():
        add("kafka.missing", settings.topic, f"offset {offset} of the log is not there")
    every = np.concatenate([expected, optional])
    if len(every):
        strange = np.setdiff1d(known[known >= every.min()], every)
        for offset in strange.tolist():
            add("kafka.unknown", settings.topic, f"the log has no such message at offset {offset}")
    return TopicAudit(name, len(all_records), len(within), int((expected > last).sum()))


def _read_log(batches: Iterable[Any], *, with_qos_0: bool) -> tuple[Any, Any]:
    """Offsets that have to be in the topic, and those that may be, ascending."""
    needed: list[Any] = [np.empty(0, dtype=np.int64)]
    optional: list[Any] = [np.empty(0, dtype=np.int64)]
    for batch in batches:
        offsets: Any = batch.column("offset").to_numpy()
        is_wanted = (batch.column("qos").to_numpy() > 0) | with_qos_0
        expires: Any = batch.column("expires_at").is_valid().to_numpy(zero_copy_only=False)
        needed.append(offsets[is_wanted & ~expires])
        optional.append(offsets[~is_wanted | expires])
    return np.sort(np.concatenate(needed)), np.sort(np.concatenate(optional))


def _read_topic(name: str, settings: KafkaForwarderConfig, writer: str) -> _Records:
    timeout_s = float(settings.timeout_s)
    options = consumer_options(shared_options(settings, f"forwarders.{name}"))
    consumer = Consumer(options)
    try:
        listed = consumer.list_topics(settings.topic, timeout=timeout_s).topics[settings.topic]
        if listed.error is not None:
            raise TargetUnavailable(f"Kafka: {settings.topic}: {listed.error.str()}")
        ends: dict[int, int] = {}
        is_whole = True
        for number in listed.partitions:
            partition = TopicPartition(settings.topic, number)
            low, high = consumer.get_watermark_offsets(partition, timeout=timeout_s)
            is_whole = is_whole and low == 0
            if low < high:
                ends[number] = high
        found = _read_partitions(consumer, settings.topic, ends, writer, timeout_s)
        return _Records(found, is_whole)
    except KafkaException as error:
        raise TargetUnavailable(f"Kafka: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _read_partitions(
    consumer: Consumer, topic: str, ends: dict[int, int], writer: str, timeout_s: float
) -> dict[int, Any]:
    """Offsets of our records in each partition, up to the end that it had."""
    found: dict[int, array[int]] = {number: array("q") for number in ends}
    left = set(ends)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
    heard_s = time.monotonic()
    while left:
        records = consumer.consume(_POLL_RECORDS, timeout=_POLL_S)
        for record in records:
            number, error = record.partition(), record.error()
            assert number is not None
            if error is None:
                at, offset = record.offset() or 0, record_offset(record, writer)
                if offset and at < ends[number]:
                    found[number].append(offset)
                if at + 1 >= ends[number]:
                    left.discard(number)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(number)
            elif not error.retriable():
                raise KafkaException(error)
        if records:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > timeout_s:
            raise TargetUnavailable("Kafka does not answer in time")
    return {number: np.array(each, dtype=np.int64) for number, each in found.items()}
