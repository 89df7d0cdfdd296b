"""The recorded log: generations of blocks in the server, and its newest messages in memory.

Feeds, shared groups and sessions in memory read it; durable sessions have their queues. There is
no index by topic: a read decodes the blocks of its range and tries the filters on each message.

Invariant: the counters of memory are those of the last closed transaction, plus what was recorded
since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Final, final

import msgspec

from perdure.errors import UsageError
from perdure.model import Message
from perdure.storage.codec import decode_record, encode_record
from perdure.storage.contract import Counted, GenerationInfo, ReadResult
from perdure.storage.remote import rows
from perdure.storage.remote.driver import LOG, META, Reads, Row, Transaction
from perdure.storage.rows import rows_of
from perdure.storage.tail import Tail
from perdure.topic.filter_set import FilterSet

POINT_EVERY: Final = 1024
"""Messages between two of the sparse counts that bound ``messages_after``."""

PAGE_ROWS_MIN: Final = 8
PAGE_ROWS_MAX: Final = 1024
PAGE_BYTES: Final = 1024 * 1024
"""Blocks read at once: few at first, and more while they turn out to be small."""

_TAIL_SCAN_MIN: Final = 4096
_TAIL_SCAN_PER_MESSAGE: Final = 16


@final
class Generation:
    """One generation: its bounds and its counters."""

    __slots__ = ("counts", "header", "messages", "offsets", "size")

    def __init__(self, header: rows.Header) -> None:
        self.header = header
        self.messages = 0
        self.size = 0
        # The sparse counts, as two lists of one length.
        self.offsets: list[int] = []
        self.counts: list[int] = []

    def holds(self, offset: int) -> bool:
        """Whether an offset belongs to it."""
        header = self.header
        return header.since_offset <= offset and (
            not header.until_offset or offset < header.until_offset
        )

    def info(self) -> GenerationInfo:
        """See ``Database.generations``."""
        header = self.header
        return GenerationInfo(
            generation=header.generation,
            layout=rows.LAYOUT,
            since_offset=header.since_offset,
            until_offset=header.until_offset,
            created_at_us=header.created_at_us,
            message_count=self.messages,
            bytes=self.size,
            stream_count=0,
        )

    def within(self, after: int, until: int) -> tuple[int, int] | None:
        """What of ``(after, until]`` is in it, in that form; None = nothing."""
        header = self.header
        low = max(after, header.since_offset - 1)
        high = min(until, header.until_offset - 1) if header.until_offset else until
        return (low, high) if low < high else None

    def messages_after(self, offset: int) -> int:
        """How many of its messages follow an offset, at most."""
        point = bisect_right(self.offsets, offset)
        return self.messages - (self.counts[point - 1] if point else 0)


def parse_generations(meta: Sequence[Row]) -> dict[int, Generation]:
    """All generations, by number, ascending; ``meta`` are all rows of that table."""
    found: dict[int, Generation] = {}
    for key, value in meta:
        if key[:1] == b"G":
            header = decode_record(rows.header_decoder, "generation", value)
            found[header.generation] = Generation(header)
    for key, value in sorted(meta):
        generation = found.get(rows.parse_generation(key))
        if generation is None:
            continue
        if key[:1] == b"N":
            generation.messages, generation.size = rows.parse_counters(value)
        elif key[:1] == b"P":
            generation.offsets.append(rows.parse_point(key))
            generation.counts.append(rows.parse_number(value))
    return dict(sorted(found.items()))


def following_limit(limit: int, page: Sequence[Row]) -> int:
    """Blocks to ask for after a page of them: more if they were small, fewer if not."""
    if sum(len(block) for _, block in page) < PAGE_BYTES:
        return min(limit * 4, PAGE_ROWS_MAX)
    return max(PAGE_ROWS_MIN, limit // 4)


@final
class RemoteLog:
    """The log of one database.

    Args:
        driver: where the blocks are.
        tail: keeps the newest messages; must reach back past all that is not dispatched yet.
    """

    def __init__(self, driver: Reads, tail: Tail) -> None:
        self._driver = driver
        self.tail = tail
        self._generations: dict[int, Generation] = {}
        self._newest = 0
        # Recorded and not yet in a closed transaction, by generation.
        self._open: dict[int, list[Message]] = {}
        self._fresh: list[Message] = []

    # -- starting --------------------------------------------------------------------------

    async def load(self, meta: Sequence[Row], *, last_offset: int) -> None:
        """Take up what is stored; ``meta`` are all rows of that table."""
        self._generations = parse_generations(meta)
        self._open = {}
        self._fresh = []
        self._newest = last_offset
        self.tail.clear(last_offset)

    def begin(self, transaction: Transaction, *, since_offset: int, now_us: int) -> Generation:
        """Stage the next generation; the one before must have ended there."""
        number = max(self._generations, default=0) + 1
        generation = Generation(rows.Header(number, since_offset, 0, now_us))
        self._generations[number] = generation
        self._put_header(transaction, generation)
        return generation

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever stored."""
        return not self._generations

    # -- writing ---------------------------------------------------------------------------

    def append(self, transaction: Transaction, message: Message) -> None:
        """Record a message; its offset is above all before it."""
        generation = self._current()
        number = generation.header.generation
        generation.messages += 1
        self._newest = message.offset
        self._fresh.append(message)
        self._open.setdefault(number, []).append(message)
        transaction.size += len(message.payload) + len(message.topic) + 32
        if not generation.messages % POINT_EVERY:
            generation.offsets.append(message.offset)
            generation.counts.append(generation.messages)
            transaction.put(
                META,
                rows.NOBODY,
                rows.point_key(number, message.offset),
                rows.number(generation.messages),
            )

    def recent(self, after_offset: int) -> list[Message]:
        """The messages recorded after an offset near the end, those of this batch too."""
        older = self.tail.between(after_offset, self._newest, 1 << 62)
        fresh = [message for message in self._fresh if message.offset > after_offset]
        return (older or []) + fresh

    def batch_written(self) -> None:
        """All calls of a batch are staged: reads may see its messages."""
        if self._fresh:
            self.tail.extend(rows_of(self._fresh))
            self._fresh = []

    def close(self, transaction: Transaction) -> None:
        """Add the blocks of what was recorded since the last transaction was closed."""
        for number, messages in self._open.items():
            generation = self._generations.get(number)
            if generation is None:
                continue
            owner = rows.generation_owner(number)
            for last, block in rows.encode_blocks(messages):
                transaction.put(LOG, owner, rows.number(last), block)
                generation.size += len(block)
            self._put_counters(transaction, generation)
        self._open = {}

    def rotate(self, transaction: Transaction, *, last_offset: int, now_us: int) -> None:
        """End the current generation and begin the next."""
        current = self._current()
        current.header = msgspec.structs.replace(current.header, until_offset=last_offset + 1)
        self._put_header(transaction, current)
        self.begin(transaction, since_offset=last_offset + 1, now_us=now_us)

    def drop(self, transaction: Transaction, number: int) -> None:
        """Forget a generation and its messages."""
        generation = self._generations.get(number)
        if generation is None or generation is self._current():
            raise UsageError(f"generation {number} is unknown or current")
        del self._generations[number]
        self._open.pop(number, None)
        owner = rows.generation_owner(number)
        transaction.drop(LOG, owner)
        for key in (rows.header_key(number), rows.counters_key(number)):
            transaction.put(META, rows.NOBODY, key, None)
        for offset in generation.offsets:
            transaction.put(META, rows.NOBODY, rows.point_key(number, offset), None)
        self.tail.forget_through(generation.header.until_offset - 1)

    def _current(self) -> Generation:
        return self._generations[next(reversed(self._generations))]

    def _put_header(self, transaction: Transaction, generation: Generation) -> None:
        key = rows.header_key(generation.header.generation)
        transaction.put(META, rows.NOBODY, key, encode_record(generation.header))
        self._put_counters(transaction, generation)

    def _put_counters(self, transaction: Transaction, generation: Generation) -> None:
        key = rows.counters_key(generation.header.generation)
        value = rows.counters(generation.messages, generation.size)
        transaction.put(META, rows.NOBODY, key, value)

    # -- what is there ---------------------------------------------------------------------

    @property
    def since_offset(self) -> int:
        """See ``Database.since_offset``."""
        return next(iter(self._generations.values())).header.since_offset

    def info(self) -> list[GenerationInfo]:
        """See ``Database.generations``."""
        return [generation.info() for generation in self._generations.values()]

    def has(self, number: int) -> bool:
        """Whether there is such a generation."""
        return number in self._generations

    def messages_after(self, offset: int) -> int:
        """See ``Database.messages_after``."""
        return sum(each.messages_after(offset) for each in self._generations.values())

    # -- reading ---------------------------------------------------------------------------

    def read_tail(
        self, filters: Sequence[str], after: int, until: int, limit: int, bytes_max: int
    ) -> ReadResult | None:
        """What memory answers of a read; None = it has to be asked of the server."""
        most = _TAIL_SCAN_MIN + limit * _TAIL_SCAN_PER_MESSAGE
        fresh = self.tail.page(after, until, limit, most, FilterSet.of(filters).any.matches)
        if fresh is None:
            return None
        page = _Page(limit, bytes_max)
        messages, through = fresh
        for message in messages:
            if not page.add(message):
                break
        return page.result(through)

    async def read(
        self, filters: Sequence[str], after: int, until: int, limit: int, bytes_max: int
    ) -> ReadResult:
        """See ``Database.read``; everything written is in the server."""
        page = _Page(limit, bytes_max)
        async for message in self._matching(filters, after, until):
            if not page.add(message):
                break
        return page.result(until)

    async def count(self, filters: Sequence[str], after: int, until: int, limit: int) -> Counted:
        """See ``Database.count``; everything written is in the server."""
        found = 0
        async for message in self._matching(filters, after, until):
            found += 1
            if found >= limit:
                return Counted(found, message.offset)
        return Counted(found, until)

    async def _matching(
        self, filters: Sequence[str], after: int, until: int
    ) -> AsyncIterator[Message]:
        wanted = FilterSet.of(filters).any
        for number, generation in list(self._generations.items()):
            within = generation.within(after, until)
            if within is None:
                continue
            async for message in self._blocks(number, *within):
                if wanted.matches(message.topic):
                    yield message

    async def _blocks(self, number: int, low: int, high: int) -> AsyncIterator[Message]:
        """All messages of a generation in ``(low, high]``, in order."""
        owner = rows.generation_owner(number)
        start = rows.number(low + 1)
        limit = PAGE_ROWS_MIN
        while True:
            page = await self._driver.scan(LOG, owner, start=start, end=b"", limit=limit)
            for _, block in page:
                for message in rows.decode_block(block):
                    if message.offset > high:
                        return
                    if message.offset > low:
                        yield message
            if len(page) < limit:
                return
            start = page[-1][0] + b"\0"
            limit = following_limit(limit, page)


@final
class _Page:
    """A page as it is filled."""

    def __init__(self, limit: int, bytes_max: int) -> None:
        self._limit = limit
        self._bytes_max = bytes_max
        self._messages: list[Message] = []
        self._size = 0
        self._is_full = False

    def add(self, message: Message) -> bool:
        """Take a message; False if the page has ended, with or without it."""
        self._size += message.held_bytes()
        if self._bytes_max and self._size > self._bytes_max and self._messages:
            self._is_full = True
            return False
        self._messages.append(message)
        self._is_full = len(self._messages) >= self._limit
        return not self._is_full

    def result(self, until: int) -> ReadResult:
        """The page, which ends at ``until`` unless it is full."""
        through = self._messages[-1].offset if self._is_full else until
        return ReadResult(self._messages, through)
