"""A reader takes turns between two consumers, and nobody can tell from what it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import final

import pytest
from confluent_kafka import Producer

from perdure.storage.kafka import KafkaSettings
from perdure.storage.kafka import reading as its
from perdure.storage.kafka.reading import HURRY_S, Reading
from perdure.storage.kafka.topic import ensure
from tests import servers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@final
class Readings:
    """A reader and who writes for it; time stands still unless the test moves it.

    Attributes:
        got: offsets, in the order in which they were read.
    """

    def __init__(self) -> None:
        self.settings = settings = KafkaSettings(
            servers.kafka().servers, servers.kafka_topic(), replicas=1
        )
        record_bytes_max = ensure(settings).record_bytes_max
        self.now_s = 1.0
        self.got: list[int] = []
        self._topic = settings.topic
        self._producer = Producer(settings.producer(record_bytes_max=record_bytes_max))
        self.reading = Reading(settings, {}, lambda: self.now_s)
        self.reading.begin(0)

    def write(self, count: int, value: bytes = b"x") -> None:
        """Write so many records, and read all that was written."""
        for _ in range(count):
            self._producer.produce(self._topic, value, partition=0)
        self._producer.flush()
        end = len(self.got) + count
        while len(self.got) < end:
            for message in self.reading.read():
                assert message.error() is None
                offset = message.offset()
                assert offset is not None
                self.got.append(offset)

    def pass_window(self) -> None:
        """Let the stretch go by in which records are counted."""
        self.now_s += HURRY_S


@pytest.fixture
def readings() -> Iterator[Readings]:
    made = Readings()
    yield made
    made.reading.close()


def test_who_waits_for_nothing_reads_in_rhythm(readings: Readings) -> None:
    reading = readings.reading
    for _ in range(3):
        readings.write(100)  # in one stretch
        readings.pass_window()
        readings.write(100)
        assert reading.in_rhythm
        reading.hurry()
        readings.write(1)
        assert not reading.in_rhythm
        readings.pass_window()
    # Of the times before its turn no consumer gives anything again.
    assert readings.got == list(range(len(readings.got)))
    assert reading.known_end() == len(readings.got)


def test_of_few_records_each_is_read_at_once(readings: Readings) -> None:
    for _ in range(3):
        readings.write(10)
        readings.pass_window()
    readings.write(1)
    assert not readings.reading.in_rhythm


def test_a_stretch_with_nothing_ends_the_rhythm(readings: Readings) -> None:
    readings.write(100)
    readings.pass_window()
    readings.write(1)
    assert readings.reading.in_rhythm
    readings.pass_window()
    readings.write(1)
    assert not readings.reading.in_rhythm


def rest(readings: Readings) -> None:
    """Nobody is here, and much is written."""
    readings.write(100)
    readings.pass_window()
    readings.write(1)
    assert readings.reading.in_rhythm
    readings.reading.rest()


def test_who_rests_finds_at_once_what_has_come_meanwhile(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(its, "REST_S", 1.0)
    rest(readings)
    begun_s = time.monotonic()
    readings.write(10)
    assert time.monotonic() - begun_s >= its.REST_S
    assert readings.got == list(range(len(readings.got)))


def test_who_rests_is_not_taken_for_idle_between_two_pages(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page comes after half a second or more: that a stretch had none says nothing."""
    monkeypatch.setattr(its, "REST_S", 0.01)
    rest(readings)
    reading = readings.reading
    reading.read()
    assert reading.rests
    for _ in range(4):
        readings.now_s += 0.8
        reading.read()
        assert reading.rests
        readings.write(200)
    readings.now_s += 5.0
    reading.read()
    readings.now_s += 5.0
    reading.read()
    assert not reading.rests, "nothing has come for long"


def test_who_rests_needs_few_records_for_it_if_they_are_large(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is slow has few records, of many messages each."""
    monkeypatch.setattr(its, "REST_S", 0.01)
    few, value = 4, bytes(its.MUCH_PER_S // 4)
    assert few < its.MANY_PER_S / 4
    readings.reading.rest()
    for _ in range(3):
        readings.write(few, value)
        readings.pass_window()
    readings.reading.read()
    assert readings.reading.rests
    readings.reading.hurry()
    readings.write(few, value)
    readings.pass_window()
    readings.reading.read()
    assert not readings.reading.in_rhythm, "somebody is here, for whom each may be"


def test_few_small_records_are_no_reason_to_rest(readings: Readings) -> None:
    """What an operator asks such a node is answered by what it has read."""
    readings.reading.rest()
    for _ in range(3):
        readings.write(its.MANY_PER_S // 4)  # in half a second
        readings.pass_window()
    readings.reading.read()
    assert not readings.reading.rests


def test_who_is_woken_rests_no_longer(readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(its, "REST_S", 600.0)
    rest(readings)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(readings.reading.read)
        readings.reading.hurry()
        assert read.result(60.0) == []
    readings.write(1)
    assert not readings.reading.in_rhythm


def test_who_is_far_behind_does_not_rest(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What librdkafka keeps is bounded: a node that rests reads as fast as others write."""
    rest(readings)
    monkeypatch.setattr(its, "REST_S", 0.0)
    readings.write(2, bytes(its.REST_BYTES // 2))
    monkeypatch.setattr(its, "REST_S", 600.0)
    assert readings.reading.read() == []
