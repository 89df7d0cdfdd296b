"""The producer: batches as transactions.

What waits for Kafka (opening, committing) does so in a thread. Records are queued on the event
loop, in slices: queueing does not wait, and a thread that competes with a busy loop for the
interpreter gets it every 5 ms, whatever it has to do.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

from confluent_kafka import KafkaException, Producer

from perdure.config.schema import ForwarderConfig
from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import ConfigError
from perdure.forwarders.kafka.producer import commit, open_producer, unavailable
from perdure.forwarders.kafka.records import Headers, is_larger
from perdure.forwarders.kafka.settings import shared_options
from perdure.forwarders.loop_share import LoopShare
from perdure.forwarders.mapping import payload_of
from perdure.forwarders.output import Context, Output, Refusal
from perdure.model import Cursor, Message

T = TypeVar("T")

TOPIC_PATTERN: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""

_ABORT_S: Final = 2.0
"""Time for taking back a batch before the producer is given up; Kafka does it otherwise."""
_FULL_S: Final = 0.005
"""Until librdkafka's queue is asked again for room."""
_KEYS: Final[Mapping[str, Callable[[Message], str]]] = {
    "topic": lambda message: message.topic,
    "publisher": lambda message: message.publisher,
    "none": lambda _: "",
}
_SLICE_RECORDS: Final = 64
"""Records that are queued before a look at the clock: about 0.2 ms."""


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
        self._key = _KEYS[settings.key]
        self._is_raw = settings.payload == "raw"
        self._headers = Headers(self._writer)
        self._context = context
        self._bytes_max = 0
        self._producer: Producer | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"forwarder {context.name}")

    async def open(self, cursor: Cursor) -> int:
        """Fence earlier writers, and find out how far the topic is."""
        return await self._call(self._open)

    async def write(self, messages: Sequence[Message]) -> list[Refusal]:
        """Write a batch in a transaction."""
        producer = self._producer
        assert producer is not None
        too_large: list[Message] = []
        try:
            await self._call(producer.begin_transaction)
            loop_share = LoopShare(self._context.core)
            queued = 0
            while queued < len(messages):
                before = queued
                queued = self._queue(producer, messages, queued, too_large)
                producer.poll(0)
                if queued == before:
                    await asyncio.sleep(_FULL_S)  # Kafka takes less than there is
                await loop_share.yield_if_due()
            deadline = time.monotonic() + self._settings.timeout_s
            await self._call(lambda: commit(producer, deadline))
        except KafkaException as error:
            raise unavailable(error) from None
        return [Refusal(each, f"larger than {self._bytes_max} bytes") for each in too_large]

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

    def _queue(
        self, producer: Producer, messages: Sequence[Message], begin: int, too_large: list[Message]
    ) -> int:
        """Queue a slice of records; up to which message there was room for them."""
        settings, key_of, headers_of = self._settings, self._key, self._headers
        until = min(len(messages), begin + _SLICE_RECORDS)
        for index in range(begin, until):
            message = messages[index]
            payload = message.payload if self._is_raw else payload_of(message, settings.payload)
            key, headers = key_of(message), headers_of(message)
            if is_larger(message, payload, key, headers, self._bytes_max):
                too_large.append(message)
                continue
            try:
                producer.produce(
                    settings.topic,
                    payload,
                    key=key or None,
                    headers=headers,
                    timestamp=message.published_at_us // 1000,
                )
            except BufferError:
                return index
        return until

    # In the thread.

    def _open(self) -> int:
        opened = open_producer(self._settings, self._shared, self._writer, setting=self._setting)
        self._producer, self._bytes_max, last = opened
        return last

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
