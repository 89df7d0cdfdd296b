"""Writes what one application is owed to its Kafka topic, as its forwarder would.

The transactional id is the forwarder's, and so is the header by which the end of the topic is
found: a task that is run twice, a driver that was killed and a forwarder that is not paused are
fenced, and what is in the topic is not written again.
"""

from __future__ import annotations

import time
from typing import Final, final

from confluent_kafka import KafkaException

from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.forwarders.kafka.producer import commit, open_producer, unavailable
from perdure.forwarders.kafka.records import Headers, is_larger
from perdure.forwarders.kafka.settings import shared_options
from perdure.model import Message

_FULL_S: Final = 0.1


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
        setting = f"forwarders.{name}"
        writer = f"{origin}/{name}"
        self._settings = settings
        self._headers = Headers(writer)
        self._pending = 0
        self.written = self.repeated = 0
        self.too_large: list[int] = []
        self._producer, self._bytes_max, self._last = open_producer(
            settings, shared_options(settings, setting), writer, setting=setting
        )

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
            raise unavailable(error) from None

    def close(self) -> None:
        """Commit the rest.

        Raises:
            TargetUnavailable: it may not be there.
        """
        if self._pending:
            try:
                self._commit()
            except KafkaException as error:
                raise unavailable(error) from None

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
        commit(self._producer, time.monotonic() + self._settings.timeout_s)
        self.written += self._pending
        self._pending = 0
