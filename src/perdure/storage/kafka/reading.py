"""How a node reads the log: at once, in rhythm, or in long breaths.

A record that is asked for at once costs a reader some 0.3 ms of CPU with all its wake-ups, and the
Kafka broker as much; of one that comes with others it costs 0.02 ms. So a node that waits for
nothing, while others write many, lets Kafka gather what it reads (``RHYTHM_MS``). Who waits is
known above: ``hurry`` is called for each submission, and for what was handed to a client here.

A page of records also costs what the caches have lost since the last one: 0.75 ms, as much as 140
messages. So a node that nobody is connected to, for whom nothing can come and of whom no node asks
a session, ``rest``s: Kafka gathers for it for ``REST_MS``, and what it gives lies there for
``REST_S``, or until ``hurry``.

librdkafka's settings hold for a consumer's life, so there is one for each pace. Where they take
turns the one that goes on is assigned the position that was reached, and what another one still
brings is below it.

Sketch, 170 records/s of 30 messages each: at once 143 wake-ups/s of the loop and 48 ms/s of CPU;
in rhythm 36 wake-ups/s and 10 ms/s. At rest 1 page/s: 0.75 instead of 40 * 0.75 ms/s, and 1 answer
of Kafka instead of 40, of 0.1 ms each in librdkafka's threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from perdure.storage.kafka.settings import KafkaSettings

RECORDS_MAX: Final = 2000
"""Records that are read in one go."""

POLL_S: Final = 0.1

RHYTHM_MS: Final = 25
"""How long Kafka gathers for a node that does not hurry, milliseconds: what comes for a client that
had nothing for a while, and a claim on a session, come so much later."""

RHYTHM_BYTES: Final = 256 * 1024
"""What Kafka does not gather any further; less than a fetch of one partition may bring."""

REST_MS: Final = 1000
"""How long Kafka gathers for a node that rests, milliseconds."""

REST_BYTES: Final = 1024 * 1024
"""As ``RHYTHM_BYTES`` for a node that rests."""

REST_FETCH_BYTES: Final = 2 * REST_BYTES
"""What a fetch may bring it: more than it has Kafka gather."""

REST_S: Final = 0.5
"""How long what was read lies there at a node that rests, seconds: Kafka's answers are looked for
so often."""

LEADER_S: Final = 1.0
"""How long a consumer that begins is waited for to hear who leads the partition, seconds."""

HURRY_S: Final = 1.0
"""How long a node reads at once behind what it has waited for, seconds."""

MANY_PER_S: Final = 80
"""Records from which the rhythm pays; below half of that it does not any more."""

MUCH_PER_S: Final = 128 * 1024
"""Bytes from which a rest pays however few the records are: a log that is slow gives few, of many
messages each, and a machine on which it is slow has least to spare."""

_WINDOW_S: Final = 0.5
_REST_WINDOW_S: Final = 4.0
"""Time for which records are counted; at rest they come some hundred at a time, or late."""
_PARTITION: Final = 0


@final
class Reading:
    """What has been read up to, and what reads on. One thread's, but for ``hurry`` and ``rest``.

    Args:
        settings: where the log is.
        callbacks: of consumers.
        now_s: monotonic time, seconds.

    """

    def __init__(
        self,
        settings: KafkaSettings,
        callbacks: Mapping[str, Callable[..., Any]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_s = now_s
        self._settings = settings
        self._callbacks = callbacks
        self._reader = Consumer({**settings.consumer(), **callbacks})
        self._consumers: dict[int, Consumer] = {0: self._reader}
        """By how long Kafka gathers for them, milliseconds."""
        self._gathers_ms = 0
        self._led: set[int] = set()
        """Consumers that have heard who leads."""
        self._position = 0
        self._hurried_until_s = 0.0
        self._window_began_s = 0.0
        self._window_count = 0
        self._window_bytes = 0
        self._is_many = self._is_much = False
        self._stirred = threading.Event()
        """Not at rest."""
        self._stirred.set()
        self._much = False
        """The last read has brought as much as a node at rest is to find at once."""

    @property
    def in_rhythm(self) -> bool:
        """It does not hurry."""
        return self._gathers_ms > 0

    @property
    def rests(self) -> bool:
        """Nor does anybody wait."""
        return self._gathers_ms == REST_MS

    @property
    def _gathers_bytes(self) -> int:
        """What Kafka does not gather any further, at this pace."""
        return REST_BYTES if self.rests else RHYTHM_BYTES

    def begin(self, position: int) -> None:
        """Read from a position on."""
        self._position = position
        self._assign()

    def hurry(self) -> None:
        """Somebody waits for what comes next (from any thread)."""
        self._hurried_until_s = self._now_s() + HURRY_S
        if not self._stirred.is_set():
            self._stirred.set()

    def rest(self) -> None:
        """Nobody waits, nor can anybody before ``hurry`` is called (from any thread)."""
        self._stirred.clear()

    def read(self) -> list[Message]:
        """What comes next, messages and errors; nothing if nothing comes for a while."""
        if self.in_rhythm and not self._much:
            self._stirred.wait(REST_S)
        self._choose()
        # Who rests waits above, where it can be woken.
        first = self._reader.poll(0 if self.rests else POLL_S)
        if first is None:
            self._much = False
            return []
        found = [first, *self._reader.consume(RECORDS_MAX - 1, 0)]
        position = self._position
        messages: list[Message] = []
        size_bytes = 0
        for message in found:
            if message.error() is None:
                offset = message.offset()
                assert offset is not None
                if offset < position:
                    continue  # of the time before this one's turn
                position = offset + 1
                size_bytes += len(message)
            messages.append(message)
        self._position = position
        self._window_count += len(messages)
        self._window_bytes += size_bytes
        self._much = size_bytes >= self._gathers_bytes or len(found) >= RECORDS_MAX
        return messages

    def known_end(self) -> int:
        """The log's end as the last answer has it: nobody is asked."""
        place = TopicPartition(self._settings.topic, _PARTITION)
        known = self._reader.get_watermark_offsets(place, cached=True)
        return max(self._position, known[1] if known else 0)

    def close(self) -> None:
        """Let go of everything."""
        for consumer in self._consumers.values():
            consumer.close()

    def _choose(self) -> None:
        now_s = self._now_s()
        window_s = now_s - self._window_began_s
        longest_s = _REST_WINDOW_S if self.rests else _WINDOW_S
        if window_s >= longest_s:
            # Who does not come back for long has counted nothing meanwhile.
            counted_s = min(window_s, longest_s)
            # Either stays until there is half as much.
            many, much = MANY_PER_S * counted_s, MUCH_PER_S * counted_s
            self._is_many = self._window_count >= many / (1 + self._is_many)
            self._is_much = self._window_bytes >= much / (1 + self._is_much)
            self._window_count = self._window_bytes = 0
            self._window_began_s = now_s
        gathers_ms = 0
        if now_s >= self._hurried_until_s:
            if not self._stirred.is_set() and (self._is_many or self._is_much):
                gathers_ms = REST_MS
            elif self._is_many:
                gathers_ms = RHYTHM_MS
        if gathers_ms == self._gathers_ms:
            return
        self._gathers_ms = gathers_ms
        self._reader.unassign()
        known = self._consumers.get(gathers_ms)
        if known is None:
            gathers = {"fetch.wait.max.ms": gathers_ms, "fetch.min.bytes": self._gathers_bytes}
            if self.rests:
                gathers["max.partition.fetch.bytes"] = REST_FETCH_BYTES
            known = Consumer({**self._settings.consumer(), **gathers, **self._callbacks})
            self._consumers[gathers_ms] = known
        self._reader = known
        self._assign()

    def _assign(self) -> None:
        topic = self._settings.topic
        self._reader.assign([TopicPartition(topic, _PARTITION, self._position)])
        if self._gathers_ms not in self._led:
            # A consumer that does not know who leads looks for that once a second. If nobody
            # answers it still does.
            with contextlib.suppress(KafkaException):
                self._reader.list_topics(topic, timeout=LEADER_S)
                self._led.add(self._gathers_ms)
