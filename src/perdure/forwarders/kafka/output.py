"""The producer: batches as transactions, in a thread of its own."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

from confluent_kafka import KafkaError, KafkaException, Producer

from perdure.config.schema import ForwarderConfig
from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import ConfigError, TargetUnavailable
from perdure.forwarders.kafka.records import headers_of, record_bytes
from perdure.forwarders.kafka.settings import producer_options, shared_options
from perdure.forwarders.kafka.topic import ensure, last_offset
from perdure.forwarders.mapping import payload_of
from perdure.forwarders.output import Context, Output, Refusal
from perdure.model import Cursor, Message

T = TypeVar("T")

TOPIC_PATTERN: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""

_ABORT_S: Final = 2.0
"""Time for taking back a batch before the producer is given up; Kafka does it otherwise."""
_RETRY_S: Final = 0.1
_GIL_RECORDS: Final = 64
"""Records after which the event loop may have the GIL: it would wait 5 ms for it otherwise."""


@final
class KafkaOutput(Output):
    """Writes records.

    Args:
        settings, context: of the forwarder.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(self, settings: KafkaForwarderConfig, context: Context) -> None:
        setting = context.setting
        if not settings.bootstrap:
            raise ConfigError("needs the address of a Kafka broker", path=f"{setting}.bootstrap")
        if TOPIC_PATTERN.fullmatch(settings.topic) is None:
            raise ConfigError(
                f"{settings.topic!r} is no name of a Kafka topic",
                path=f"{setting}.topic",
                hint="letters, digits, dot, - and _, 249 at most",
            )
        self._settings = settings
        self._shared = shared_options(settings, setting)
        self._setting = setting
        self._writer = f"{context.origin}/{context.name}"
        self._bytes_max = 0
        self._producer: Producer | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"forwarder {context.name}")

    async def open(self, cursor: Cursor) -> int:
        """Fence earlier writers, and find out how far the topic is."""
        return await self._call(self._open)

    async def write(self, messages: Sequence[Message]) -> list[Refusal]:
        """Write a batch in a transaction."""
        return await self._call(lambda: self._write(messages))

    async def close(self) -> None:
        """Give the producer up."""
        if not self._thread_is_idle:
            # A call that was given up ends by its own time limits.
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
            return
        self._thread_is_idle = False
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    _thread_is_idle = True

    async def _call(self, work: Callable[[], T]) -> T:
        self._thread_is_idle = False
        done = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._thread_is_idle = True
        return done

    # In the thread.

    def _open(self) -> int:
        settings, timeout_s = self._settings, float(self._settings.timeout_s)
        try:
            topic = ensure(settings, self._shared, timeout_s=timeout_s)
            self._bytes_max = topic.bytes_max
            options = producer_options(
                self._shared,
                transactional_id=f"perdure-{self._writer}",
                timeout_s=settings.timeout_s,
                bytes_max=max(topic.bytes_max, 1000),
            )
            self._producer = Producer(options)
            self._producer.init_transactions(timeout_s)
            return last_offset(settings, self._shared, topic, self._writer, timeout_s=timeout_s)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError._INVALID_ARG:
                raise ConfigError(
                    f"librdkafka: {reason.str()}", path=f"{self._setting}.options"
                ) from None
            raise TargetUnavailable(f"Kafka: {reason.str()}") from None

    def _write(self, messages: Sequence[Message]) -> list[Refusal]:
        producer, settings = self._producer, self._settings
        assert producer is not None
        try:
            producer.begin_transaction()
            too_large: list[Message] = []
            for begin in range(0, len(messages), _GIL_RECORDS):
                part = messages[begin : begin + _GIL_RECORDS]
                too_large += [each for each in part if not self._produce(producer, each)]
                producer.poll(0)
            self._commit(producer, time.monotonic() + settings.timeout_s)
        except KafkaException as error:
            raise TargetUnavailable(f"Kafka: {error.args[0].str()}") from None
        return [Refusal(each, f"larger than {self._bytes_max} bytes") for each in too_large]

    def _produce(self, producer: Producer, message: Message) -> bool:
        """Queue a record; False if the topic takes none of its size."""
        settings = self._settings
        payload = payload_of(message, settings.payload)
        key = {"topic": message.topic, "publisher": message.publisher, "none": ""}[settings.key]
        headers = headers_of(message, self._writer)
        if record_bytes(payload, key, headers) > self._bytes_max:
            return False
        while True:
            try:
                producer.produce(
                    settings.topic,
                    payload,
                    key=key.encode() or None,
                    headers=headers,
                    timestamp=message.published_at_us // 1000,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                return True

    def _commit(self, producer: Producer, deadline: float) -> None:
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

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge(blocking=False)
        try:
            producer.abort_transaction(_ABORT_S)
        except KafkaException:
            return  # there is none, or the next one that opens takes it back


def open_output(settings: ForwarderConfig, context: Context) -> KafkaOutput:
    """Make the output."""
    assert isinstance(settings, KafkaForwarderConfig)
    return KafkaOutput(settings, context)
