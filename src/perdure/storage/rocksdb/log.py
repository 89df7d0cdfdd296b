"""Reads the log: the tail in memory if it holds what is asked for, else the generations' tables.

Both give the same messages in the same order. For filters without wildcards the tail has an index;
for others it is looked through from where the reader stands, page by page, unless hardly anything
of it is wanted. For who goes on where a page of the tables ended, more is read at once.

Invariant: offsets ascend over all messages that a read gives; a generation follows another as a
whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from perdure.model import Message
from perdure.storage.bundle import count_of
from perdure.storage.codec import head_length
from perdure.storage.contract import Counted, ReadResult
from perdure.storage.offsets import Offsets
from perdure.storage.rocksdb.effort import Effort
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.generations import Generation, Generations
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.read_ahead import BYTES_MAX as AHEAD_BYTES_MAX
from perdure.storage.rocksdb.read_ahead import ReadAhead
from perdure.storage.rows import JOIN_BYTES_MAX, Rows
from perdure.storage.tail import Tail
from perdure.topic.filter_set import FilterSet

_TAIL_SCAN_MIN: Final = 512
_TAIL_SCAN_PER_MESSAGE: Final = 4
"""Messages of the tail that a read tries at most: so many, and so many for each one wanted.
Trying a filter costs about a tenth of reading a message from a table."""

_FILL_PAGE: Final = 4096
"""Messages that are added to a tail at once when it is filled."""


@final
class LogReader:
    """Reads over all generations."""

    def __init__(self, generations: Generations, tail: Tail, offsets: Offsets) -> None:
        self._generations = generations
        self._tail = tail
        self._offsets = offsets
        self._ahead = ReadAhead()

    def read(
        self,
        filters: Sequence[str],
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int,
    ) -> ReadResult:
        """See ``Database.read``."""
        wanted = FilterSet.of(filters)
        page = self._of_tail(wanted, after_offset, until_offset, limit, bytes_max)
        if page is not None:
            return page
        return self._ahead_or_tables(wanted, after_offset, until_offset, limit, bytes_max)

    def forget(self) -> None:
        """Messages have left the log: nothing that was read ahead is given any more."""
        self._ahead.clear()

    def count(
        self, filters: Sequence[str], after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        """See ``Database.count``."""
        wanted = FilterSet.of(filters)
        page = self._of_tail(wanted, after_offset, until_offset, limit, 0)
        if page is not None:
            return Counted(len(page.messages), page.through_offset)
        found, effort = 0, Effort()
        for generation in self._generations.between(after_offset, until_offset):
            low, high = self._clamp(generation, after_offset, until_offset)
            part = generation.layout.count(
                wanted, after_offset=low, until_offset=high, limit=limit - found, effort=effort
            )
            found += part.count
            if found >= limit or part.through_offset < high:
                return Counted(found, part.through_offset)
        return Counted(found, until_offset)

    def _ahead_or_tables(
        self, wanted: FilterSet, after: int, until: int, limit: int, bytes_max: int
    ) -> ReadResult:
        """A page of what was read ahead for this reader, or of the tables."""
        place = (wanted.filters, after)
        held = self._ahead.take(place, until)
        if held is not None:
            messages, through = held.messages, held.through_offset
        else:
            messages, through = self._read_tables(
                wanted, after, until, limit, self._ahead.most(place, limit), bytes_max
            )
        page = _page(messages, through, limit, bytes_max)
        self._ahead.gave(place, page.through_offset, messages[len(page.messages) :], through)
        return page

    def _read_tables(
        self,
        wanted: FilterSet,
        after: int,
        until: int,
        limit: int,
        most: int,
        bytes_max: int,
    ) -> tuple[list[Message], int]:
        """Messages of the tables, ``limit`` and up to ``most`` of them while they are small, and up
        to which offset they are all: they are fewer where most rows are in vain."""
        messages: list[Message] = []
        size_bytes = 0
        effort = Effort()
        for message in self._matching(wanted, after, until, effort):
            size_bytes += message.held_bytes()
            if (bytes_max and size_bytes > bytes_max and messages) or (
                len(messages) >= limit and size_bytes > AHEAD_BYTES_MAX
            ):
                return messages, messages[-1].offset
            messages.append(message)
            if len(messages) >= most:
                return messages, message.offset
        return messages, until if effort.through_offset < 0 else effort.through_offset

    def _matching(
        self, wanted: FilterSet, after: int, until: int, effort: Effort
    ) -> Iterator[Message]:
        for generation in self._generations.between(after, until):
            low, high = self._clamp(generation, after, until)
            yield from generation.layout.scan(
                wanted, after_offset=low, until_offset=high, effort=effort
            )
            if effort.through_offset >= 0:
                return

    def _clamp(self, generation: Generation, after: int, until: int) -> tuple[int, int]:
        """The bounds that make sense in a generation."""
        header = generation.header
        last = header.until_offset - 1 if header.until_offset else self._offsets.last
        return max(after, header.since_offset - 1), min(until, last)

    def _of_tail(
        self, wanted: FilterSet, after: int, until: int, limit: int, bytes_max: int
    ) -> ReadResult | None:
        """A page of what is in memory; None = it begins before that."""
        exact = self._exact(wanted, after, until, limit)
        if exact is not None:
            return _page(exact, until, limit, bytes_max)
        fresh = self._fresh(wanted, after, until, limit)
        if fresh is not None:
            return _page(fresh[0], fresh[1], limit, bytes_max)
        return None

    def _exact(self, wanted: FilterSet, after: int, until: int, limit: int) -> list[Message] | None:
        """The messages of filters without wildcards, if the tail has them all."""
        if not wanted.is_exact:
            return None
        return self._tail.of_topics(wanted.filters, after, until, limit)

    def _fresh(
        self, wanted: FilterSet, after: int, until: int, limit: int
    ) -> tuple[list[Message], int] | None:
        most = _TAIL_SCAN_MIN + limit * _TAIL_SCAN_PER_MESSAGE
        return self._tail.page(after, until, limit, most, wanted.any.matches)


def fill_tail(
    tail: Tail, engine: Engine, generation: Generation, layout: SkipScanLayout, last_offset: int
) -> None:
    """Put the newest messages of the current generation into an empty tail.

    Args:
        last_offset: nothing is recorded after it.
    """
    count = min(tail.messages_max, generation.message_count)
    if not count:
        return
    # What is read and does not fit, because of a few large messages at the end, the tail forgets.
    row_bytes = engine.table_bytes(layout.tables[0]) // generation.message_count
    if row_bytes:
        count = min(count, tail.bytes_max // row_bytes)
    after = generation.newest(count)
    tail.clear(after)
    page: Rows | None = None
    for topic, offset, value in layout.rows(after, last_offset):
        head_length(offset, value)  # what is damaged stays on the disk
        messages = count_of(value, offset, -1, offset)
        if page is not None and page.payload_bytes + len(value) > JOIN_BYTES_MAX:
            tail.extend(page)
            page = None
        if page is None:
            page = Rows(max(offset - messages, after) + 1)
        page.add(topic, offset, value)
        page.count += messages
        page.payload_bytes += len(value)
        if page.count >= _FILL_PAGE:
            tail.extend(page)
            page = None
    if page is not None:
        tail.extend(page)


def _page(found: list[Message], until_offset: int, limit: int, bytes_max: int) -> ReadResult:
    """As much of what was found as one read may give."""
    messages = found
    if len(found) >= limit:
        messages = found[:limit]
    if bytes_max:
        size_bytes = 0
        for at, message in enumerate(messages):
            size_bytes += message.held_bytes()
            if size_bytes > bytes_max and at:
                return ReadResult(messages[:at], messages[at - 1].offset)
    return ReadResult(messages, messages[-1].offset if len(messages) >= limit else until_offset)
