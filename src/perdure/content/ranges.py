"""Ranges of numbers, or of texts, by what is in them: which of many hold a value.

Built at once and in one piece. What is added later stands beside until it is a fifth of all, and
what is removed stays in as long: whoever asks tries what is found, so too much does no harm.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, Final, final

_RECENT_MIN: Final = 32
"""Changes that are never worth building anew."""

Range = tuple[Any, Any, str]
"""Lower bound, upper bound (None = none, not both), and whose it is."""


@final
class Ranges:
    """Ranges of values of one kind, all bounds included."""

    __slots__ = ("_changes", "_from", "_held", "_highs", "_lows", "_recent", "_top", "_until",
                 "_whose")  # fmt: skip

    def __init__(self) -> None:
        self._held: dict[Range, None] = {}
        self._recent: dict[Range, None] = {}
        """Not built in yet."""
        self._changes: int = 0
        self._from: tuple[list[Any], list[str]] = ([], [])
        """Without an upper bound, by the lower one."""
        self._until: tuple[list[Any], list[str]] = ([], [])
        """Without a lower bound, by the upper one."""
        self._lows: list[Any] = []
        """With both, by the lower one."""
        self._highs: list[Any] = []
        """Greatest upper bound below each node of a binary tree over them; its leaves are theirs.
        """
        self._whose: list[str] = []
        self._top: int = 0
        """Leaves of the tree: a power of two."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, low: Any, high: Any, whose: str) -> None:
        """Add a range; the same one twice is one."""
        one: Range = (low, high, whose)
        if one not in self._held:
            self._held[one] = None
            self._recent[one] = None
            self._changes += 1

    def remove(self, low: Any, high: Any, whose: str) -> None:
        """Take a range out."""
        one: Range = (low, high, whose)
        if one in self._held:
            del self._held[one]
            self._recent.pop(one, None)
            self._changes += 1

    def find(self, value: Any, found: dict[str, None]) -> None:
        """Add whose ranges a value is in; some that were removed may be among them."""
        if self._changes > _RECENT_MIN + len(self._held) // 4:
            self._build()
        for low, high, whose in self._recent:
            if (low is None or low <= value) and (high is None or value <= high):
                found[whose] = None
        bounds, owners = self._from
        for place in range(bisect_right(bounds, value)):
            found[owners[place]] = None
        bounds, owners = self._until
        for place in range(bisect_left(bounds, value), len(bounds)):
            found[owners[place]] = None
        if self._lows:
            self._find_both(value, found)

    def _find_both(self, value: Any, found: dict[str, None]) -> None:
        """Down the tree, where an upper bound reaches and the lower ones begin before."""
        end = bisect_right(self._lows, value)
        todo: list[tuple[int, int, int]] = [(1, 0, self._top)]
        while todo:
            node, first, width = todo.pop()
            high = self._highs[node]
            if first >= end or high is None or high < value:
                continue
            if width == 1:
                found[self._whose[first]] = None
                continue
            half = width // 2
            todo.append((2 * node, first, half))
            todo.append((2 * node + 1, first + half, half))

    def _build(self) -> None:
        self._changes = 0
        self._recent.clear()
        self._from = _by_bound([(low, who) for low, high, who in self._held if high is None])
        self._until = _by_bound([(high, who) for low, high, who in self._held if low is None])
        both = [one for one in self._held if one[0] is not None and one[1] is not None]
        by_low: Callable[[Range], Any] = _low_of
        both.sort(key=by_low)
        self._lows = [one[0] for one in both]
        self._whose = [one[2] for one in both]
        self._top = 1
        while self._top < len(both):
            self._top *= 2
        highs: list[Any] = [None] * (2 * self._top)
        for place, one in enumerate(both):
            highs[self._top + place] = one[1]
        for node in range(self._top - 1, 0, -1):
            left, right = highs[2 * node], highs[2 * node + 1]
            highs[node] = left if right is None or right < left else right
        self._highs = highs


def _low_of(one: Range) -> Any:
    return one[0]


def _bound_of(one: tuple[Any, str]) -> Any:
    return one[0]


def _by_bound(ranges: list[tuple[Any, str]]) -> tuple[list[Any], list[str]]:
    ranges.sort(key=_bound_of)
    return [one[0] for one in ranges], [one[1] for one in ranges]
