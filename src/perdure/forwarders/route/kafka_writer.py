"""Writes what one application is owed to its Kafka topic, as its forwarder would.

The transactional id is the forwarder's, and so is the header by which the end of the topic is
found: a task that is run twice, a driver that was killed and a forwarder that is not paused are
fenced, and what is in the topic is not written again.
"""

from __future__ import annotations

import time
from typing import Final, final

from confluent_kafka import KafkaException, Producer

from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import TargetUnavailable
from perdure.forwarders.kafka.records import Headers, is_larger
from perdure.forwarders.kafka.settings import producer_options, shared_options
from perdure.forwarders.kafka.topic import ensure, last_offset
from perdure.model import Message

_FULL_S: Final = 0.1
_RETRY_S: Final = 0.1


@final
class KafkaWriter:
    """One application's topic; made for one task.

    Args:
        name: of the forwarder.
        settings: of the forwarder.
        origin: of the broker.

    Attributes:
        written: messages that are in the topic by it.
        repeated: messages that were there.
        too_large: offsets of messages that the topic does not take.

    Raises:
        ConfigError: the settings cannot be used.
        TargetUnavailable: Kafka does not answer.
    """

    def __init__(self, name: str, settings: KafkaForwarderConfig, *, origin: str) -> None:
        shared = shared_options(settings, f"forwarders.{name}")
        writer = f"{origin}/{name}"
        timeout_s = float(settings.timeout_s)
        self._settings = settings
        self._headers = Headers(writer)
        self._pending = 0
        self.written = self.repeated = 0
        self.too_large: list[int] = []
        try:
            topic = ensure(settings, shared, timeout_s=timeout_s)
            self._bytes_max = topic.bytes_max
            self._producer = Producer(
                producer_options(
                    shared,
                    transactional_id=f"perdure-{writer}",
                    timeout_s=settings.timeout_s,
                    bytes_max=max(topic.bytes_max, 1000),
                )
            )
            self._producer.init_transactions(timeout_s)
            self._last = last_offset(settings, shared, topic, writer, timeout_s=timeout_s)
        except KafkaException as error:
            raise _unavailable(error) from None

    def put(self, message: Message, *, granted: int, now_us: int) -> None:
        """Take one; offsets ascend."""
        if message.offset <= self._last:
            self.repeated += 1
            return
        if 0 < message.expires_at_us <= now_us:
            return
        key, headers = message.publisher, self._headers(message)
        if is_larger(message, message.payload, key, headers, self._bytes_max):
            self.too_large.append(message.offset)
            return
        try:
            if not self._pending:
                self._producer.begin_transaction()
            self._produce(message, key, headers)
            self._pending += 1
            if self._pending >= self._settings.batch_messages:
                self._commit()
        except KafkaException as error:
            raise _unavailable(error) from None

    def close(self) -> None:
        """Commit the rest.

        Raises:
            TargetUnavailable: it may not be there.
        """
        if self._pending:
            try:
                self._commit()
            except KafkaException as error:
                raise _unavailable(error) from None

    def _produce(self, message: Message, key: str, headers: object) -> None:
        while True:
            try:
                self._producer.produce(
                    self._settings.topic,
                    message.payload,
                    key=key or None,
                    headers=headers,  # type: ignore[arg-type]
                    timestamp=message.published_at_us // 1000,
                )
            except BufferError:
                self._producer.poll(_FULL_S)
            else:
                return

    def _commit(self) -> None:
        deadline = time.monotonic() + self._settings.timeout_s
        while True:
            try:
                self._producer.commit_transaction(max(_RETRY_S, deadline - time.monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
            else:
                break
        self.written += self._pending
        self._pending = 0


def _unavailable(error: KafkaException) -> TargetUnavailable:
    return TargetUnavailable(f"Kafka: {error.args[0].str()}")
