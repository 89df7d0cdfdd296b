"""The ordered logs under the contract: a later one joins with one more entry in ``LOGS``."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import final

from perdure.errors import StorageError
from perdure.storage.kafka import KafkaLog, KafkaSettings
from perdure.storage.ordered.contract import LogRecord, OrderedLog
from tests import servers
from tests.support.shared_log import SharedLog


@final
class Collected:
    """A reader that keeps what it gets.

    Attributes:
        got: the records.
        error: the failure.
    """

    def __init__(self) -> None:
        self.got: list[LogRecord] = []
        self.error: StorageError | None = None
        self._changed = asyncio.Event()

    def records(self, records: list[LogRecord]) -> None:
        assert records
        self.got += records
        self._changed.set()

    def failed(self, error: StorageError) -> None:
        assert self.error is None
        self.error = error
        self._changed.set()

    async def wait(self, count: int) -> list[bytes]:
        """Wait for so many records; returns their values."""
        while len(self.got) < count and self.error is None:
            self._changed.clear()
            await self._changed.wait()
        assert self.error is None, self.error
        return [record.value for record in self.got]

    async def wait_for_any(self, count: int) -> None:
        """Wait for a record beyond so many, or the failure."""
        while len(self.got) <= count and self.error is None:
            self._changed.clear()
            await self._changed.wait()

    async def wait_failed(self) -> StorageError:
        """Wait for the failure."""
        while self.error is None:
            self._changed.clear()
            await self._changed.wait()
        return self.error


class LogPlace(ABC):
    """A log that is empty at first."""

    @abstractmethod
    async def open(self) -> OrderedLog:
        """A new end of it."""


@final
class ToyPlace(LogPlace):
    """The toy's."""

    def __init__(self) -> None:
        self.log = SharedLog(at_once=True)

    async def open(self) -> OrderedLog:
        return self.log.end()


@final
class KafkaPlace(LogPlace):
    """A topic of the Kafka of this run."""

    def __init__(self) -> None:
        self.settings = KafkaSettings(servers.kafka().servers, servers.kafka_topic(), replicas=1)

    async def open(self) -> OrderedLog:
        return await KafkaLog.open(self.settings)


LOGS: dict[str, type[LogPlace]] = {"toy": ToyPlace, "kafka": KafkaPlace}
