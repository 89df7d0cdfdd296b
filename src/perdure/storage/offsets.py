"""Gives out offsets: ``max(last + 1, now in microseconds)``, so that a time is a position."""

from __future__ import annotations

from typing import final


@final
class Offsets:
    """The highest offset that was given; may be ahead of what was written."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last: int = last

    def allocate(self, now_us: int) -> int:
        """The next offset."""
        offset = self.last + 1
        if now_us > offset:
            offset = now_us
        self.last = offset
        return offset
