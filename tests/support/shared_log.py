"""A toy of the log that nodes share: ``storage.ordered.contract.OrderedLog`` without a network.

``SharedLog`` keeps the records; each node has a ``LogEnd`` on it. What is submitted waits at its
end until the log takes it (``take_one``, whose turn it is decides chance), and what the log has
taken waits until the node reads it (``LogEnd.read``). A test moves both as it likes: latency, a
node that stands still, one that is cut off, and one that dies with records on their way are orders
of these calls. With ``at_once`` the log moves by itself.

An end may also take a record twice, as a produce whose answer was lost and that nobody recognises:
real Kafka does not do that, and nodes survive it all the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import final

from perdure.errors import LogShorter, LogTruncated, RecordTooLarge, StorageError
from perdure.storage.ordered.contract import LogBounds, LogReader, LogRecord

RECORD_BYTES_MAX = 1_000_000


@final
class SharedLog:
    """The log.

    Args:
        chance: decides whose record is next.
        at_once: records enter, and are read, at the next turn of the loop.
        record_bytes_max: bytes of the largest record.

    Attributes:
        entries: all that was ever in it.
        first: the lowest position that is still there.
        now_us: its clock.
        time_step_us: of what it tells of that; Kafka's are ``TIME_STEP_US``.
        ends: of all nodes, of dead ones too.
    """

    def __init__(
        self,
        chance: random.Random | None = None,
        *,
        at_once: bool = False,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self.record_bytes_max = record_bytes_max
        self.entries: list[LogRecord] = []
        self.first = 0
        self.now_us = 0
        self.time_step_us = 1
        self.at_once = at_once
        self._chance = chance or random.Random(0)
        self.ends: list[LogEnd] = []

    def end(self) -> LogEnd:
        """A new node's end."""
        end = LogEnd(self)
        self.ends.append(end)
        return end

    def take_one(self) -> bool:
        """Take the next record of one end; False if none has any."""
        ready = [end for end in self.ends if end.waiting and not end.is_cut]
        if not ready:
            return False
        self.take(self._chance.choice(ready))
        return True

    def take(self, end: LogEnd, *, twice: bool = False) -> None:
        """Take the next record of an end.

        Args:
            twice: it enters two times.
        """
        value = end.waiting.popleft()
        for _ in range(2 if twice else 1):
            time_us = self.now_us - self.now_us % self.time_step_us
            self.entries.append(LogRecord(len(self.entries), time_us, value))

    def take_all(self) -> None:
        """Take everything, and let everybody read it."""
        busy = True
        while busy:
            while self.take_one():
                pass
            busy = self.read_all()

    def read_all(self) -> bool:
        """Let everybody read what there is; False if there was nothing for anybody."""
        busy = False
        for end in self.ends:
            busy |= not end.is_cut and end.read()
        return busy


@final
class LogEnd:
    """One node's end.

    Attributes:
        waiting: submitted and not taken, oldest first.
        is_cut: nothing goes in or out.
        rests: nobody waits for what others submit.
        is_closed: its process has ended.
    """

    def __init__(self, log: SharedLog) -> None:
        self.log = log
        self.waiting: deque[bytes] = deque()
        self.is_cut = False
        self.rests = False
        self._reader: LogReader | None = None
        self._position = 0
        self._failure: StorageError | None = None
        self.is_closed = False

    @property
    def record_bytes_max(self) -> int:
        return self.log.record_bytes_max

    @property
    def problem(self) -> str:
        return "cut off" if self.is_cut else ""

    @property
    def end(self) -> int:
        return len(self.log.entries)

    @property
    def lag(self) -> int:
        """Records that this end has not read."""
        return len(self.log.entries) - self._position

    def start(self, reader: LogReader, position: int) -> None:
        assert self._reader is None, "a log is started once"
        self._reader = reader
        self._position = position
        if self.log.at_once:
            asyncio.get_running_loop().call_soon(self.read)

    def submit(self, value: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        if len(value) > self.record_bytes_max:
            raise RecordTooLarge(f"a record of {len(value)} bytes; {self.record_bytes_max} fit")
        self.waiting.append(value)
        if self.log.at_once:
            asyncio.get_running_loop().call_soon(self.log.take_all)

    def hurry(self) -> None:
        """A test decides when this end reads."""
        self.rests = False

    def rest(self) -> None:
        """A test decides when this end reads."""
        self.rests = True

    def read(self, limit: int = 0) -> bool:
        """Give the reader what the log has for it; False if that is nothing.

        Args:
            limit: records, at most; 0 = all.
        """
        reader, log = self._reader, self.log
        if reader is None or self.is_closed or self._failure is not None:
            return False
        if self._position < log.first:
            return self.fail(LogTruncated(f"the log begins at {log.first}"))
        if self._position > len(log.entries):
            return self.fail(LogShorter(f"the log ends at {len(log.entries)}"))
        stop = self._position + limit if limit else None
        records = log.entries[self._position : stop]
        if not records:
            return False
        self._position += len(records)
        reader.records(records)
        return True

    def fail(self, error: StorageError) -> bool:
        """The log fails, here."""
        self._failure = error
        if self._reader is not None:
            self._reader.failed(error)
        return True

    def die(self, *, arrived: int = 0) -> None:
        """The process dies: so many of its records reach the log, the others are lost."""
        while len(self.waiting) > arrived:
            self.waiting.pop()
        self.is_closed = True

    async def bounds(self) -> LogBounds:
        return LogBounds(self.log.first, len(self.log.entries))

    async def trim(self, position: int) -> None:
        self.log.first = max(self.log.first, min(position, len(self.log.entries)))

    async def close(self) -> None:
        self.die(arrived=len(self.waiting))
