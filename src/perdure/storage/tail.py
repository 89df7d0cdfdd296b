"""The newest messages of the log, in memory, so that a fresh read asks no disk.

Holds the rows that were written last, as they were written, within a count and a size; knows no
filters. Messages are made of them when they are asked for: as objects they would be hundreds of
thousands of small pieces of memory in no order, and every new message would be made of cold ones.
When somebody asks for single topics the tail begins an index of them, which costs the writing of
messages nothing: it is brought up to date when it is asked, and thrown away when half of what it
holds is gone.

Invariant: every recorded message with an offset above ``floor`` is in the tail, in order.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, final

from perdure.model import Message
from perdure.storage.rows import Chunk, Rows

_CUT_MIN: Final = 64
"""Forgotten chunks before the lists are cut, count: that many, and half of all."""

_ROW_BITS: Final = 24
_ROW_MASK: Final = (1 << _ROW_BITS) - 1
"""The index has the number of a row's chunk, and in these bits that of the row in it."""

_MADE_MESSAGES_MAX: Final = 4096
_MADE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Messages that are kept once made, and bytes of their rows: sessions that come back together
want the same ones."""


@final
class Tail:
    """The end of the log.

    Args:
        messages_max: most messages, count; 0 = no tail.
        bytes_max: most bytes of rows and long topics: a payload of one byte may have properties
            of megabytes.
        floor: everything recorded so far is at or below this offset.
    """

    __slots__ = (
        "_bytes",
        "_chunks",
        "_count",
        "_indexed",
        "_indexed_gone",
        "_lasts",
        "_made",
        "_made_bytes",
        "_made_count",
        "_serial",
        "_start",
        "_topics",
        "bytes_max",
        "floor",
        "messages_max",
    )

    def __init__(self, *, messages_max: int, bytes_max: int, floor: int) -> None:
        self.messages_max: int = messages_max
        self.bytes_max: int = bytes_max
        self._chunks: list[Chunk] = []
        self._lasts: list[int] = []
        """The last offset of each chunk."""
        self._count = 0
        self._bytes = 0
        # Chunks before this one are gone; the lists are cut now and then, not each time.
        self._start = 0
        # Number of the first chunk in the lists, counted since the start.
        self._serial = 0
        self._topics: dict[str, array[int]] = {}
        # Chunks before this one are in the index, and so many messages of those in it are gone.
        self._indexed = 0
        self._indexed_gone = 0
        self._made: dict[int, list[Message]] = {}
        self._made_count = 0
        self._made_bytes = 0
        self.floor = floor

    def extend(self, rows: Rows) -> None:
        """Add rows that were just written; they ascend."""
        newest = self._lasts[-1] if self._lasts else self.floor
        last = rows.offsets[-1]
        if rows.first <= newest:
            # A batch begun earlier was written later. Rare: forget rather than sort.
            self.clear(max(newest, last))
            return
        chunk = Chunk(rows)
        self._chunks.append(chunk)
        self._lasts.append(last)
        self._count += chunk.count
        self._bytes += chunk.size_bytes
        while self._count > self.messages_max or self._bytes > self.bytes_max:
            self._forget_first()
        self._cut()

    def clear(self, floor: int) -> None:
        """Forget everything; all that was recorded is at or below ``floor``."""
        self._chunks.clear()
        self._lasts.clear()
        self._count = 0
        self._bytes = 0
        self._start = 0
        self._forget_index()
        self._forget_made()
        self.floor = floor

    def forget_through(self, offset: int) -> None:
        """Forget the messages up to an offset, some of which are recorded no more."""
        while self._start < len(self._lasts) and self._lasts[self._start] <= offset:
            self._forget_first()
        self.floor = max(self.floor, offset)
        self._cut()

    def between(self, after_offset: int, until_offset: int, most: int) -> list[Message] | None:
        """The messages in ``(after_offset, until_offset]``; None if the tail does not hold them
        all, or if they are more than about ``most``."""
        if after_offset < self.floor:
            return None
        first = bisect_right(self._lasts, after_offset, self._start)
        stop = min(bisect_left(self._lasts, until_offset, first) + 1, len(self._lasts))
        spans = [self._chunks[at].span(after_offset, until_offset) for at in range(first, stop)]
        looked = 0
        for at, (low, high) in enumerate(spans, first):
            chunk = self._chunks[at]
            looked += chunk.count * (high - low) // len(chunk.offsets)
        if looked > most:
            return None
        found: list[Message] = []
        for at, (low, high) in enumerate(spans, first):
            chunk = self._chunks[at]
            for row in range(low, high):
                self._take(found, chunk, row, after_offset, until_offset)
        return found

    def page(
        self,
        after_offset: int,
        until_offset: int,
        limit: int,
        most: int,
        wants: Callable[[str], bool],
    ) -> tuple[list[Message], int] | None:
        """The first ``limit`` messages after an offset of the topics that are wanted, and perhaps
        some more of the last row.

        However far behind the end of the log a reader is, it pays for what it is given only.

        Returns:
            The messages, and the offset up to which they are all there are. None if the tail does
            not hold them, or if they are not among the first ``most`` messages: who leaps over the
            others finds them sooner.
        """
        if after_offset < self.floor:
            return None
        found: list[Message] = []
        looked = 0
        for at in range(bisect_right(self._lasts, after_offset, self._start), len(self._lasts)):
            chunk = self._chunks[at]
            low, high = chunk.span(after_offset, until_offset)
            in_row = chunk.count // len(chunk.offsets)
            for row in range(low, high):
                if wants(chunk.topics[row]):
                    self._take(found, chunk, row, after_offset, until_offset)
                    if len(found) >= limit:
                        return found, min(chunk.offsets[row], until_offset)
                looked += in_row
                if looked > most:
                    return None
            if self._lasts[at] >= until_offset:
                break
        return found, until_offset

    def of_topics(
        self, topics: Sequence[str], after_offset: int, until_offset: int, limit: int
    ) -> list[Message] | None:
        """The first ``limit`` messages of some topics in ``(after_offset, until_offset]``, in
        order, and perhaps some after them, but not all. None if the tail does not hold them all."""
        if after_offset < self.floor:
            return None
        self._bring_index()
        found: list[Message] = []
        for topic in topics:
            places = self._topics.get(topic)
            if places is None:
                continue
            enough = len(found) + limit
            first = self._first_after(places, after_offset)
            for place in places[first : first + limit].tolist():
                chunk = self._chunks[(place >> _ROW_BITS) - self._serial]
                row = place & _ROW_MASK
                offset = chunk.offsets[row]
                # The topic as it was asked for: one object for all of its messages.
                message = chunk.small(topic, row, offset) if offset <= until_offset else None
                if message is not None:
                    found.append(message)
                else:
                    self._take(found, chunk, row, after_offset, until_offset)
                if offset >= until_offset or len(found) >= enough:
                    break
        if len(topics) > 1:
            found.sort(key=_offset_of)
        return found

    def _first_after(self, places: array[int], after: int) -> int:
        """The first of the rows of a topic that ends after an offset."""
        low, high = 0, len(places)
        oldest = self._serial + self._start
        while low < high:
            middle = (low + high) // 2
            serial = places[middle] >> _ROW_BITS
            if serial < oldest or (
                self._chunks[serial - self._serial].offsets[places[middle] & _ROW_MASK] <= after
            ):
                low = middle + 1
            else:
                high = middle
        return low

    def _take(self, found: list[Message], chunk: Chunk, row: int, after: int, until: int) -> None:
        """Add the messages of a row that are in ``(after, until]``."""
        offset = chunk.offsets[row]
        messages = self._made.get(offset)
        if messages is None:
            messages = chunk.messages(row, offset)
            self._keep_made(offset, messages, chunk.row_bytes(row))
        if after < messages[0].offset and offset <= until:
            found += messages
        else:
            found += [message for message in messages if after < message.offset <= until]

    def _keep_made(self, offset: int, messages: list[Message], size_bytes: int) -> None:
        if size_bytes > _MADE_BYTES_MAX:
            return
        self._made_count += len(messages)
        self._made_bytes += size_bytes
        if self._made_count > _MADE_MESSAGES_MAX or self._made_bytes > _MADE_BYTES_MAX:
            self._forget_made()
            self._made_count = len(messages)
            self._made_bytes = size_bytes
        self._made[offset] = messages

    def _forget_made(self) -> None:
        self._made = {}
        self._made_count = 0
        self._made_bytes = 0

    def _bring_index(self) -> None:
        """Add to the index what came since it was last asked."""
        news: dict[str, list[int]] = {}
        for at in range(max(self._indexed, self._start), len(self._chunks)):
            chunk = self._chunks[at]
            place = (self._serial + at) << _ROW_BITS
            for topic in chunk.topics:
                new = news.get(topic)
                if new is None:
                    news[topic] = [place]
                else:
                    new.append(place)
                place += 1
        # Packed, because an array takes numbers one by one at many times the cost.
        topics = self._topics
        for topic, new in news.items():
            same = topics.get(topic)
            if same is None:
                topics[topic] = same = array("q")
            same.frombytes(struct.pack(f"{len(new)}q", *new))
        self._indexed = len(self._chunks)

    def _forget_index(self) -> None:
        self._topics = {}
        self._indexed = 0
        self._indexed_gone = 0

    def _forget_first(self) -> None:
        """Forget the oldest chunk. What is gone is still in the index, where nobody finds it: it
        is below the floor."""
        start = self._start
        chunk = self._chunks[start]
        if start < self._indexed:
            self._indexed_gone += chunk.count
        self._count -= chunk.count
        self._bytes -= chunk.size_bytes
        self.floor = self._lasts[start]
        self._chunks[start] = _GONE
        self._start = start + 1
        if self._indexed_gone * 2 > self.messages_max:
            self._forget_index()

    def _cut(self) -> None:
        start = self._start
        if start > _CUT_MIN and start * 2 > len(self._lasts):
            del self._lasts[:start], self._chunks[:start]
            self._start = 0
            self._serial += start
            self._indexed = max(0, self._indexed - start)


_GONE: Final = Chunk(Rows(0))


def _offset_of(message: Message) -> int:
    return message.offset
