"""The Kafka topic: made if it is not there, and how far it is.

Calls block: they belong in a thread.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import TargetUnavailable
from perdure.forwarders.kafka.settings import Options, consumer_options

OFFSET_HEADER: Final = "perdure.offset"
"""Of each record: where the message stands in the log."""
WRITER_HEADER: Final = "perdure.forwarder"
"""Of each record: which forwarder of which broker has written it."""

BYTES_MAX: Final = 1_048_588
"""Kafka's own ``max.message.bytes``."""
TAIL_RECORDS: Final = 100
"""Records at the end of a partition that are looked at first; then ten times as many, and so on."""
_RETRY_S: Final = 0.2


@final
class Topic(NamedTuple):
    """What is known of the topic.

    Attributes:
        partitions: how many.
        bytes_max: of one record, as it takes it.
    """

    partitions: int
    bytes_max: int


def ensure(settings: KafkaForwarderConfig, shared: Options, *, timeout_s: float) -> Topic:
    """Make the topic if it is not there.

    Raises:
        TargetUnavailable: Kafka does not answer, or does not let us.
    """
    admin = AdminClient(dict(shared))
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = _known(admin, settings, timeout_s)
            if found is not None:
                return found
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if not reason.retriable() and reason.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TargetUnavailable(f"Kafka: {reason.str()}") from None
        if time.monotonic() > deadline:
            raise TargetUnavailable(f"Kafka does not make the topic {settings.topic}")
        time.sleep(_RETRY_S)


def _known(admin: AdminClient, settings: KafkaForwarderConfig, timeout_s: float) -> Topic | None:
    listed = admin.list_topics(timeout=timeout_s)
    found = listed.topics.get(settings.topic)
    if found is None:
        _create(admin, settings, brokers=len(listed.brokers), timeout_s=timeout_s)
        return None
    if found.error is not None:
        raise KafkaException(found.error)
    resource = ConfigResource(ResourceType.TOPIC, settings.topic)
    described = admin.describe_configs([resource], request_timeout=timeout_s)
    options = described[resource].result(timeout_s)
    entry = options.get("max.message.bytes")
    return Topic(len(found.partitions), int(entry.value) if entry is not None else BYTES_MAX)


def _create(
    admin: AdminClient, settings: KafkaForwarderConfig, *, brokers: int, timeout_s: float
) -> None:
    topic = NewTopic(
        settings.topic,
        num_partitions=settings.partitions,
        replication_factor=max(1, min(settings.replicas, brokers)),
    )
    done = admin.create_topics([topic], request_timeout=timeout_s)[settings.topic]
    try:
        done.result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def last_offset(
    settings: KafkaForwarderConfig, shared: Options, topic: Topic, writer: str, *, timeout_s: float
) -> int:
    """The offset of the last message of ours that is in the topic; 0 = there is none.

    A batch is in all its partitions or in none, and batches are in order: the highest counts.

    Args:
        writer: value of ``WRITER_HEADER``.

    Raises:
        TargetUnavailable: Kafka does not answer.
    """
    consumer = Consumer(consumer_options(shared))
    deadline = time.monotonic() + timeout_s
    try:
        return max(
            _last_of(consumer, settings.topic, number, writer, deadline)
            for number in range(topic.partitions)
        )
    except KafkaException as error:
        raise TargetUnavailable(f"Kafka: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _last_of(consumer: Consumer, topic: str, number: int, writer: str, deadline: float) -> int:
    partition = TopicPartition(topic, number)
    low, high = consumer.get_watermark_offsets(partition, timeout=_left(deadline))
    count = TAIL_RECORDS
    while True:
        start = max(low, high - count)
        partition.offset = start if start > low else OFFSET_BEGINNING
        consumer.assign([partition])
        found = _read_to_end(consumer, writer, deadline)
        if found or start <= low:
            return found
        count *= 10


def _read_to_end(consumer: Consumer, writer: str, deadline: float) -> int:
    found = 0
    while True:
        for record in consumer.consume(1000, timeout=min(1.0, _left(deadline))):
            error = record.error()
            if error is None:
                found = record_offset(record, writer) or found
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            elif not error.retriable():
                raise KafkaException(error)
        _left(deadline)


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TargetUnavailable("Kafka does not answer in time")
    return left_s


def record_offset(record: Message, writer: str) -> int:
    """Where the message of a record stands in the log; 0 = another one has written it."""
    headers = dict(record.headers() or [])
    value = headers.get(OFFSET_HEADER)
    if headers.get(WRITER_HEADER) != writer.encode() or not isinstance(value, bytes):
        return 0
    return int(value) if value.isdigit() else 0
