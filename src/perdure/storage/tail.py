"""The newest messages of the log, in memory, so that a fresh read asks no disk.

Holds what was written last, within a count and a size; knows no filters.

Invariant: every recorded message with an offset above ``floor`` is in the tail, in order.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from perdure.model import Message

_CUT_AT: Final = 1024
"""Forgotten entries before the lists are cut, count."""


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
        "_bytes_max",
        "_messages",
        "_messages_max",
        "_offsets",
        "_start",
        "floor",
    )

    def __init__(self, *, messages_max: int, bytes_max: int, floor: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages: list[Message] = []
        self._offsets: list[int] = []
        self._bytes = 0
        # Entries before this one are gone; the lists are cut now and then, not each time.
        self._start = 0
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
        self.floor = floor

    def forget_through(self, offset: int) -> None:
        """Forget the messages up to an offset, some of which are recorded no more."""
        while self._start < len(self._offsets) and self._offsets[self._start] <= offset:
            self._drop_first()
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

    def _shrink(self) -> None:
        while self._start < len(self._offsets) and (
            len(self._offsets) - self._start > self._messages_max or self._bytes > self._bytes_max
        ):
            self._drop_first()
        self._cut()

    def _drop_first(self) -> None:
        start = self._start
        self._bytes -= len(self._messages[start].payload)
        self.floor = self._offsets[start]
        self._start = start + 1

    def _cut(self) -> None:
        start = self._start
        if start > _CUT_AT and start * 2 > len(self._offsets):
            del self._offsets[:start], self._messages[:start]
            self._start = 0
