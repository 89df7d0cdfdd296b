"""The newest messages of the log, in memory, so that a fresh read asks no disk.

Holds what was written last, within a count and a size; knows no filters. When somebody asks for
single topics it begins an index of them, which costs the writing of messages nothing: it is
brought up to date when it is asked, and thrown away when half of what it holds is gone.

Invariant: every recorded message with an offset above ``floor`` is in the tail, in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, final

from perdure.model import Message

_CUT_MIN: Final = 1024
_CUT_MAX: Final = 8192
"""Forgotten entries before the lists are cut, count: between these, as many as are left. Cutting
moves what is left; not cutting keeps what is forgotten in memory."""


@final
class Tail:
    """The end of the log.

    Args:
        messages_max: most messages, count; 0 = no tail.
        bytes_max: most payload bytes.
        floor: everything recorded so far is at or below this offset.
    """

    __slots__ = (
        "_bytes",
        "_indexed",
        "_indexed_gone",
        "_messages",
        "_offsets",
        "_start",
        "_topics",
        "bytes_max",
        "floor",
        "messages_max",
    )

    def __init__(self, *, messages_max: int, bytes_max: int, floor: int) -> None:
        self.messages_max: int = messages_max
        self.bytes_max: int = bytes_max
        self._messages: list[Message] = []
        self._offsets: list[int] = []
        self._bytes = 0
        # Entries before this one are gone; the lists are cut now and then, not each time.
        self._start = 0
        self._topics: dict[str, list[Message]] = {}
        # Entries before this one are in the index, and so many of those in it are gone.
        self._indexed = 0
        self._indexed_gone = 0
        self.floor = floor

    def extend(self, messages: list[Message]) -> None:
        """Add messages that were just written; they ascend."""
        offsets = [message.offset for message in messages]
        newest = self._offsets[-1] if self._offsets else self.floor
        if offsets[0] <= newest:
            # A batch begun earlier was written later. Rare: forget rather than sort.
            self.clear(max(newest, offsets[-1]))
            return
        self._messages += messages
        self._offsets += offsets
        self._bytes += sum([len(message.payload) for message in messages])
        self._shrink()

    def clear(self, floor: int) -> None:
        """Forget everything; all that was recorded is at or below ``floor``."""
        self._messages.clear()
        self._offsets.clear()
        self._bytes = 0
        self._start = 0
        self._forget_index()
        self.floor = floor

    def forget_through(self, offset: int) -> None:
        """Forget the messages up to an offset, some of which are recorded no more."""
        start = self._start
        while start < len(self._offsets) and self._offsets[start] <= offset:
            self._bytes -= len(self._messages[start].payload)
            start += 1
        self._forget_before(start)
        self.floor = max(self.floor, offset)
        self._cut()

    def between(self, after_offset: int, until_offset: int, most: int) -> list[Message] | None:
        """The messages in ``(after_offset, until_offset]``; None if the tail does not hold them
        all, or there are more than ``most``."""
        if after_offset < self.floor:
            return None
        first = bisect_right(self._offsets, after_offset, self._start)
        last = bisect_right(self._offsets, until_offset, first)
        return None if last - first > most else self._messages[first:last]

    def of_topics(
        self, topics: Sequence[str], after_offset: int, until_offset: int
    ) -> list[Message] | None:
        """The messages of some topics in ``(after_offset, until_offset]``, in order; None if the
        tail does not hold them all."""
        if after_offset < self.floor:
            return None
        self._bring_index()
        found: list[Message] = []
        parts = 0
        for topic in topics:
            messages = self._topics.get(topic)
            if messages is None:
                continue
            low, high = 0, len(messages)
            while low < high:
                middle = (low + high) // 2
                if messages[middle].offset <= after_offset:
                    low = middle + 1
                else:
                    high = middle
            end = len(messages)
            while end > low and messages[end - 1].offset > until_offset:
                end -= 1
            if end > low:
                found += messages[low:end]
                parts += 1
        if parts > 1:
            found.sort(key=_offset_of)
        return found

    def _bring_index(self) -> None:
        """Add to the index what came since it was last asked."""
        at = max(self._indexed, self._start)
        messages = self._messages
        end = len(messages)
        topics = self._topics
        while at < end:
            message = messages[at]
            same = topics.get(message.topic)
            if same is None:
                topics[message.topic] = [message]
            else:
                same.append(message)
            at += 1
        self._indexed = end

    def _forget_index(self) -> None:
        self._topics = {}
        self._indexed = 0
        self._indexed_gone = 0

    def _shrink(self) -> None:
        messages = self._messages
        start = self._start
        end = len(messages)
        size_bytes = self._bytes
        while start < end and (end - start > self.messages_max or size_bytes > self.bytes_max):
            size_bytes -= len(messages[start].payload)
            start += 1
        if start != self._start:
            self._bytes = size_bytes
            self._forget_before(start)
            self._cut()

    def _forget_before(self, start: int) -> None:
        """The entries before this one are gone."""
        if start == self._start:
            return
        # What is gone is still in the index, where nobody finds it: it is below the floor.
        self._indexed_gone += max(0, min(start, self._indexed) - self._start)
        self.floor = self._offsets[start - 1]
        self._start = start
        if self._indexed_gone * 2 > self.messages_max:
            self._forget_index()

    def _cut(self) -> None:
        start = self._start
        if start > _CUT_MIN and (start >= _CUT_MAX or start * 2 > len(self._offsets)):
            del self._offsets[:start], self._messages[:start]
            self._start = 0
            self._indexed = max(0, self._indexed - start)


def _offset_of(message: Message) -> int:
    return message.offset
