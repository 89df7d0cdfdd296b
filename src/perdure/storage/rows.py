"""Rows of the log as they were written: what a write brings, and what the tail keeps of it.

Messages are made of them when they are asked for. Knows no filters and no engine.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, final

from perdure.limits import OFFSET_MAX
from perdure.model import Message
from perdure.storage.bundle import count_in, decode_row, encode_run, run_end
from perdure.storage.codec import VERSION as MESSAGE_VERSION
from perdure.storage.codec import decode_message

JOIN_BYTES_MAX: Final = 256 * 1024
"""Values of one write that are copied into one piece; larger ones stay as they are."""

TOPIC_SHARED_BYTES: Final = 256
"""Up to this length the topics of a log are few, and shared with who else knows them; a longer one
is counted with its row."""

_SMALL_BYTES: Final = 1024
"""A row up to which its message is made anew for each who asks for its topic."""


@final
class Rows:
    """Rows that are written to the log together.

    Attributes:
        topics: of each row.
        offsets: of the last message of each row; they ascend.
        values: a message or a bundle (``storage.bundle``) each.
        first: offset of the first message.
        count: messages.
        payload_bytes: of all messages.
    """

    __slots__ = ("_packed", "count", "first", "offsets", "payload_bytes", "topics", "values")

    def __init__(self, first: int) -> None:
        self.first: int = first
        self.count: int = 0
        self.payload_bytes: int = 0
        self.topics: list[str] = []
        self.offsets: list[int] = []
        self.values: list[bytes] = []
        self._packed: bytes = b""

    def packed_offsets(self) -> bytes:
        """The offsets, 8 bytes each, big-endian; to be asked when all rows are there."""
        if not self._packed:
            self._packed = struct.pack(f">{len(self.offsets)}Q", *self.offsets)
        return self._packed

    def add(self, topic: str, offset: int, value: bytes) -> None:
        """The next row."""
        self.topics.append(topic)
        self.offsets.append(offset)
        self.values.append(value)

    def cut(self, row_count: int, count: int, payload_bytes: int) -> None:
        """Take out what was added last.

        Args:
            row_count, count, payload_bytes: rows, messages and their payload that stay.
        """
        del self.topics[row_count:], self.offsets[row_count:], self.values[row_count:]
        self.count, self.payload_bytes = count, payload_bytes

    def messages_of(self, row: int) -> list[Message]:
        """The messages of a row."""
        return decode_row(self.topics[row], self.offsets[row], self.values[row], -1, OFFSET_MAX)

    def messages(self) -> list[Message]:
        """The messages of all rows."""
        found: list[Message] = []
        for row in range(len(self.topics)):
            found += self.messages_of(row)
        return found

    def offset_of(self, index: int) -> int:
        """The offset of a message, counted from 0."""
        if len(self.offsets) == self.count:
            return self.offsets[index]
        row = -1
        behind = -1 - index
        while behind < 0:
            row += 1
            behind += count_in(self.values[row])
        return self.offsets[row] - behind


def rows_of(messages: list[Message], *, bundled: bool = True) -> Rows:
    """Messages (by ascending offset) as rows.

    Args:
        bundled: consecutive messages of one topic may be one row.
    """
    rows = Rows(messages[0].offset)
    first, count = 0, len(messages)
    while first < count:
        stop = run_end(messages, first) if bundled else first + 1
        rows.add(
            messages[first].topic, messages[stop - 1].offset, encode_run(messages, first, stop)
        )
        first = stop
    payload_bytes = 0
    for message in messages:
        payload_bytes += len(message.payload)
    rows.count = count
    rows.payload_bytes = payload_bytes
    return rows


def long_topics_bytes(topics: list[str]) -> int:
    """What the topics of rows hold by themselves, bytes."""
    size = 0
    for topic in topics:
        if len(topic) > TOPIC_SHARED_BYTES:
            size += len(topic)
    return size


@final
class Chunk:
    """Rows that came together, in few large pieces of memory.

    Attributes:
        size_bytes: what it holds: payloads, properties and long topics.
    """

    __slots__ = ("blob", "count", "ends", "offsets", "size_bytes", "topics", "values")

    def __init__(self, rows: Rows) -> None:
        self.count: int = rows.count
        self.topics: list[str] = rows.topics
        # Of bytes: an array takes numbers one by one, for several times the cost.
        self.offsets: array[int] = array("q", rows.packed_offsets())
        if sys.byteorder == "little":
            self.offsets.byteswap()
        ends: list[int] = []
        end = 0
        for value in rows.values:
            end += len(value)
            ends.append(end)
        self.ends: array[int] = array("q", struct.pack(f"{len(ends)}q", *ends))
        self.size_bytes: int = end + long_topics_bytes(rows.topics)
        joined = end <= JOIN_BYTES_MAX
        self.blob: bytes = b"".join(rows.values) if joined else b""
        self.values: list[bytes] = [] if joined else rows.values

    def messages(self, row: int, offset: int) -> list[Message]:
        """The messages of a row; ``offset`` is that of the last."""
        return decode_row(self.topics[row], offset, self._value(row), -1, offset)

    def row_bytes(self, row: int) -> int:
        """What a row holds, with its topic."""
        start = self.ends[row - 1] if row else 0
        return self.ends[row] - start + len(self.topics[row])

    def small(self, topic: str, row: int, offset: int) -> Message | None:
        """The message of a row that is one, and small; else None."""
        blob = self.blob
        if not blob:
            return None
        ends = self.ends
        start = ends[row - 1] if row else 0
        stop = ends[row]
        if stop - start > _SMALL_BYTES or blob[start] != MESSAGE_VERSION:
            return None
        return decode_message(topic, offset, blob, start, stop)

    def span(self, after: int, until: int) -> tuple[int, int]:
        """Rows ``[low, high)`` that may have messages in ``(after, until]``."""
        low = bisect_right(self.offsets, after)
        return low, min(bisect_left(self.offsets, until, low) + 1, len(self.offsets))

    def _value(self, row: int) -> bytes:
        if self.values:
            return self.values[row]
        return self.blob[self.ends[row - 1] if row else 0 : self.ends[row]]
