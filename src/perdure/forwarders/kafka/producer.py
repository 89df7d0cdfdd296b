"""The one writer of a topic: opened where the last one ended, and batches committed.

Calls block: they belong in a thread or a task.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, final

from confluent_kafka import KafkaError, KafkaException, Producer

from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import ConfigError, TargetUnavailable
from perdure.forwarders.kafka.settings import Options, producer_options
from perdure.forwarders.kafka.topic import ensure, last_offset

_BYTES_MIN: Final = 1000
"""The least that librdkafka takes for the size of a record."""
_RETRY_S: Final = 0.1


@final
class Opened(NamedTuple):
    """A producer that has fenced all that had its name.

    Attributes:
        producer: ready for a transaction.
        bytes_max: of one record, as the topic takes it.
        last: offset of the last message in the topic; 0 = there is none.
    """

    producer: Producer
    bytes_max: int
    last: int


def open_producer(
    settings: KafkaForwarderConfig, shared: Options, writer: str, *, setting: str
) -> Opened:
    """Make the topic if need be, fence earlier writers, and find out how far the topic is.

    Args:
        settings: of the forwarder.
        shared: what every connection is told.
        writer: broker and forwarder; names the transactional id and marks the records.
        setting: path of the forwarder's settings.

    Raises:
        ConfigError: librdkafka does not take an option.
        TargetUnavailable: Kafka does not answer.
    """
    timeout_s = float(settings.timeout_s)
    try:
        topic = ensure(settings, shared, timeout_s=timeout_s)
        options = producer_options(
            shared,
            transactional_id=f"perdure-{writer}",
            timeout_s=settings.timeout_s,
            bytes_max=max(topic.bytes_max, _BYTES_MIN),
        )
        producer = Producer(options)
        producer.init_transactions(timeout_s)
        last = last_offset(settings, shared, topic, writer, timeout_s=timeout_s)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError._INVALID_ARG:
            raise ConfigError(f"librdkafka: {reason.str()}", path=f"{setting}.options") from None
        raise unavailable(error) from None
    return Opened(producer, topic.bytes_max, last)


def commit(producer: Producer, deadline: float) -> None:
    """Commit the transaction, again and again where that may help.

    Args:
        producer: with a transaction.
        deadline: of the monotonic clock, seconds.

    Raises:
        KafkaException: it may not be committed.
    """
    while True:
        try:
            producer.commit_transaction(max(_RETRY_S, deadline - time.monotonic()))
        except KafkaException as error:
            # Where it can be asked again it may have been done: then the answer says so.
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def unavailable(error: KafkaException) -> TargetUnavailable:
    """What librdkafka says, as an error of a target."""
    return TargetUnavailable(f"Kafka: {error.args[0].str()}")
