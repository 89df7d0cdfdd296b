"""Gives out offsets: ``max(last + 1, now in microseconds)``, so that a time is a position."""

from __future__ import annotations

from typing import final


@final
class Offsets:
    """The highest offset that was given; may be ahead of what was written."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last: int = last

    def take(self, count: int, now_us: int) -> int:
        """The next offsets, consecutive.

        Args:
            count: at least 1.
            now_us: wall time.

        Returns:
            The first of them.
        """
        offset = self.last + 1
        if now_us > offset:
            offset = now_us
        self.last = offset + count - 1
        return offset

    def next_at(self, now_us: int) -> int:
        """The offset that ``take`` would give first."""
        return max(self.last + 1, now_us)
