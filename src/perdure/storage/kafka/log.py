"""A node's end of the log in Kafka.

The loop hands records to librdkafka's producer, which sends them from a thread of its own; a thread
of ours takes what its consumer has read and hands it to the loop, as a list with one call. So a
record costs the loop a call in each direction, and many that come together cost little more.

librdkafka does what a log's promises rest on: the idempotent producer numbers what it sends, so
that an answer that is lost, or a leader that dies, neither repeats a record nor changes the order.
It tries for as long as the log is open. What is left as a failure: rights that were withdrawn, a
topic that is gone or was cut off where we read, and a producer that is fenced.

Invariant: what the reader has got is a contiguous part of the partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeAlias, TypeVar, final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ThrottleEvent,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from perdure.errors import (
    LogShorter,
    LogTruncated,
    RecordTooLarge,
    StorageCorrupt,
    StorageError,
    StorageUnavailable,
)
from perdure.observe.logs import get_logger
from perdure.storage.kafka.reached import LOST_HINT, Reached
from perdure.storage.kafka.reading import POLL_S, Reading
from perdure.storage.kafka.reasons import reason_of, unavailable
from perdure.storage.kafka.settings import OPEN_TIMEOUT_S, KafkaSettings
from perdure.storage.kafka.topic import TopicFacts, ensure
from perdure.storage.ordered.contract import LogBounds, LogReader, LogRecord

T = TypeVar("T")

ToLoop: TypeAlias = Callable[[Callable[[], object]], object]
"""Has something run on the loop, in order, from any thread; a ``RuntimeError`` if it was closed."""

log = get_logger("storage")

HANDED_MAX: Final = 2
"""Lists on their way to the loop; the thread waits then, and Kafka keeps what follows."""

CALL_TIMEOUT_S: Final = 5.0
FLUSH_S: Final = 2.0
"""How long a close waits for what was submitted, seconds."""

THROTTLED: Final = "Kafka holds requests back by its quotas"

CONFIRM_S: Final = 5.0
"""How long Kafka has to say that the log is shorter than a node has read, seconds: a broker that
stood still says so too, until it hears that it does not lead any more."""

_PARTITION: Final = 0
_US_PER_MS: Final = 1000

# The producer goes on after these; a record that they are reported for is not in the log.
_PASSING: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})
_GONE: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_CLOSING: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


@final
class KafkaLog:
    """An ``ordered.contract.OrderedLog``. Made by ``open``.

    Args:
        settings: where it is.
        facts: of its topic.
        to_loop: how the reading thread reaches the loop; None = as asyncio has it.

    Attributes:
        facts: of its topic.
    """

    def __init__(
        self, settings: KafkaSettings, facts: TopicFacts, *, to_loop: ToLoop | None = None
    ) -> None:
        self._settings = settings
        self.facts = facts
        self._to_loop = to_loop
        self._end = 0
        self._problem = ""
        self._failure: StorageError | None = None
        self._known: LogBounds | None = None
        """The bounds as they were a moment before the reader begins."""
        self._reader: LogReader | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._room = threading.Semaphore(HANDED_MAX)
        shared = {"error_cb": self._told}
        try:
            self._producer = Producer(
                {
                    **settings.producer(record_bytes_max=facts.request_bytes_max),
                    **shared,
                    "on_delivery": self._undelivered,
                    "throttle_cb": self._throttled,
                }
            )
            self._reading = Reading(settings, shared)
        except KafkaException as error:
            raise unavailable(error.args[0], settings.servers) from error

    @classmethod
    async def open(
        cls,
        settings: KafkaSettings,
        *,
        timeout_s: float = OPEN_TIMEOUT_S,
        to_loop: ToLoop | None = None,
    ) -> KafkaLog:
        """Make or check the topic, and connect.

        Args:
            settings: where it is.
            timeout_s: how long to wait for Kafka, seconds.
            to_loop: as above.

        Raises:
            ConfigError: the topic can't be used, or the settings can't.
            StorageUnavailable: Kafka does not answer yet.
            StorageError: it does not let us.
        """
        facts = await asyncio.to_thread(ensure, settings, timeout_s=timeout_s)
        return cls(settings, facts, to_loop=to_loop)

    # -- the contract ----------------------------------------------------------------------

    @property
    def record_bytes_max(self) -> int:
        return self.facts.record_bytes_max

    @property
    def problem(self) -> str:
        return self._problem

    @property
    def end(self) -> int:
        return self._end

    def start(self, reader: LogReader, position: int) -> None:
        assert self._reader is None, "a log is started once"
        self._reader = reader
        if self._to_loop is None:
            self._to_loop = asyncio.get_running_loop().call_soon_threadsafe
        self._thread = threading.Thread(
            target=self._run, args=(position,), name="perdure-kafka", daemon=True
        )
        self._thread.start()

    def submit(self, value: bytes) -> None:
        failure = self._failure
        if failure is not None:
            raise type(failure)(failure.message, hint=failure.hint)
        if len(value) > self.facts.record_bytes_max:
            raise RecordTooLarge(
                f"a record of {len(value)} bytes; topic {self._settings.topic} takes "
                f"{self.facts.record_bytes_max}",
                hint="raise max.message.bytes of the topic, and restart the nodes one by one",
            )
        try:
            self._producer.produce(self._settings.topic, value, partition=_PARTITION)
        except BufferError as error:
            raise StorageUnavailable(
                f"{len(self._producer)} records wait for Kafka", hint=self._problem
            ) from error
        except KafkaException as error:
            raise self._fail(unavailable(error.args[0], self._settings.servers)) from error

    def hurry(self) -> None:
        self._reading.hurry()

    def rest(self) -> None:
        self._reading.rest()

    async def bounds(self) -> LogBounds:
        bounds = await asyncio.to_thread(self._bounds)
        if self._thread is None:
            self._known = bounds
        return bounds

    async def trim(self, position: int) -> None:
        def delete() -> None:
            admin = self._admin()
            place = TopicPartition(self._settings.topic, _PARTITION, position)
            self._answer(admin.delete_records([place], request_timeout=CALL_TIMEOUT_S)[place])

        await asyncio.to_thread(delete)

    async def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._room.release()
        self._reading.hurry()
        await asyncio.to_thread(self._close)

    # -- in a thread -----------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        # One that is asked beside the consumer: librdkafka answers a query of a consumer that is
        # polled at the same time with silence, now and then.
        return AdminClient({**self._settings.shared()})

    def _bounds(self) -> LogBounds:
        admin = self._admin()
        place = TopicPartition(self._settings.topic, _PARTITION)
        # Both at once.
        first, end = (
            admin.list_offsets({place: spec}, request_timeout=CALL_TIMEOUT_S)[place]
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        )
        return LogBounds(self._answer(first).offset, self._answer(end).offset)

    def _answer(self, asked: Future[T]) -> T:
        """What Kafka answers; whoever calls keeps the client that has asked."""
        try:
            return asked.result(2 * CALL_TIMEOUT_S)
        except KafkaException as error:
            raise unavailable(error.args[0], self._settings.servers) from error
        except TimeoutError as error:
            raise StorageUnavailable(f"{self._settings.servers}: Kafka does not answer") from error

    def _close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._failure is None:
            self._producer.flush(FLUSH_S)
        self._producer.purge()
        self._producer.flush(FLUSH_S)
        self._reading.close()

    def _run(self, position: int) -> None:
        """Read until the end."""
        try:
            self._read(Reached(self._settings.topic, position))
        except StorageError as error:
            self._on_loop(self._fail, error)
        except KafkaException as error:
            self._on_loop(self._fail, unavailable(error.args[0], self._settings.servers))

    def _read(self, reached: Reached) -> None:
        self._resume(reached)
        served_s = 0.0
        while not self._closing.is_set():
            messages = self._reading.read()
            # Each call into librdkafka gives the interpreter lock away and waits for it, so what
            # is not needed for every record is done now and then.
            now_s = time.monotonic()
            if not messages or now_s - served_s >= POLL_S:
                served_s = now_s
                self._producer.poll(0)
                self._end = max(reached.position, self._reading.known_end())
            records: list[LogRecord] = []
            broken: KafkaError | None = None
            for message in messages:
                broken = message.error()
                if broken is not None:
                    break
                records.append(self._record(message))
            records = reached.take(records)
            if records:
                self._end = max(reached.position, self._end)
                self._hand(records)
            if broken is not None:
                self._broken(broken, reached)

    def _resume(self, reached: Reached) -> None:
        """Read on where a node is, once Kafka says that it has that."""
        asked_s = time.monotonic()
        # Each time that Kafka is asked costs a connection, and now and then seconds.
        bounds, self._known = self._known or self._bounds_in_time(), None
        while (
            bounds is not None
            and bounds.end < reached.position
            and time.monotonic() - asked_s < CONFIRM_S
            and not self._closing.wait(POLL_S)
        ):
            bounds = self._bounds_in_time()
        if bounds is not None:
            self._check(reached.position, bounds)
            self._reading.begin(reached.resume_at(bounds.first))

    def _bounds_in_time(self) -> LogBounds | None:
        """The log's bounds, as soon as Kafka answers; None = closed before it did."""
        while not self._closing.is_set():
            try:
                return self._bounds()
            except StorageUnavailable as error:
                self._problem = error.message
                self._producer.poll(0)
        return None

    def _check(self, position: int, bounds: LogBounds) -> None:
        topic = self._settings.topic
        if position < bounds.first:
            raise LogTruncated(
                f"this node has to read topic {topic} from {position}, which begins at "
                f"{bounds.first}",
                hint="restore a checkpoint that is newer, and raise the topic's retention.ms",
            )
        if position > bounds.end:
            raise LogShorter(
                f"this node has read topic {topic} up to {position}, which ends at {bounds.end}: "
                "Kafka has lost its tail, or it is another topic",
                hint=LOST_HINT,
            )

    def _record(self, message: Message) -> LogRecord:
        kind, time_ms = message.timestamp()
        value, position = message.value(), message.offset()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            raise StorageCorrupt(
                f"topic {self._settings.topic}: a record has its sender's time",
                hint="message.timestamp.type was changed: set it to LogAppendTime again",
            )
        if not isinstance(value, bytes) or position is None:
            raise StorageCorrupt(f"topic {self._settings.topic}: a record has no value")
        return LogRecord(position, time_ms * _US_PER_MS, value)

    def _broken(self, error: KafkaError, reached: Reached) -> None:
        """The consumer says that something is wrong."""
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._told(error)
            if not self._closing.wait(POLL_S):
                self._resume(reached)
            return
        if error.code() not in _GONE and (error.retriable() or error.code() in _PASSING):
            self._told(error)
            return
        raise KafkaException(error)

    def _hand(self, records: list[LogRecord]) -> None:
        self._room.acquire()
        if not self._closing.is_set():
            self._on_loop(self._take, records)

    def _on_loop(self, call: Callable[[T], object], argument: T) -> None:
        to_loop = self._to_loop
        if to_loop is None or self._reader is None:
            return  # nobody reads yet
        # A loop that has ended has nobody who waits for records.
        with contextlib.suppress(RuntimeError):
            to_loop(partial(call, argument))

    def _told(self, error: KafkaError) -> None:
        """A connection says that something is wrong (librdkafka goes on by itself)."""
        reason = reason_of(error)
        if error.fatal():
            self._on_loop(self._fail, unavailable(error, self._settings.servers))
        elif reason.text != self._problem:
            self._problem = reason.text
            self._on_loop(self._log_problem, str(reason))

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        """A record is not in the log: what follows it must not enter without it."""
        if error is None or (self._closing.is_set() and error.code() in _CLOSING):
            return
        self._on_loop(self._fail, unavailable(error, self._settings.servers))

    def _throttled(self, event: ThrottleEvent) -> None:
        if event.throttle_time and self._problem != THROTTLED:
            self._problem = THROTTLED
            self._on_loop(self._log_problem, THROTTLED)

    # -- on the loop -----------------------------------------------------------------------

    def _log_problem(self, text: str) -> None:
        log.warning("kafka.problem", servers=self._settings.servers, reason=text)

    def _take(self, records: list[LogRecord]) -> None:
        self._room.release()
        if self._problem:
            self._problem = ""
        if self._reader is not None and self._failure is None and not self._closing.is_set():
            self._reader.records(records)

    def _fail(self, error: StorageError) -> StorageError:
        """Nothing more goes in or comes out."""
        if self._failure is None and not self._closing.is_set():
            self._failure = error
            # What waits to be sent must not enter without what went before it.
            self._producer.purge()
            if self._reader is not None:
                self._reader.failed(error)
        return error
