"""A log-linear histogram of durations: exact counts, values within 1 part in 128.

Values are nanoseconds. Below 256 each has its own bucket; above, each power of two is cut into
128 equal ones, so a bucket is never wider than 1/128 of its values, from a microsecond to hours,
in about 40 KiB. Pure: it knows no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

_SUB_BITS: Final = 7
_SUB: Final = 1 << _SUB_BITS
VALUE_MAX: Final = (1 << 44) - 1
"""Larger values (4.8 hours) are counted as this one."""
_BUCKETS: Final = (44 - _SUB_BITS - 1) * _SUB + 2 * _SUB

RELATIVE_ERROR: Final = 1 / _SUB


@final
class Histogram:
    """Counts of values.

    Attributes:
        count: values recorded.
        total: their sum.
        low: the least; 0 when there are none.
        high: the largest.
    """

    __slots__ = ("_counts", "count", "high", "low", "total")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * _BUCKETS
        self.count: int = 0
        self.total: int = 0
        self.low: int = 0
        self.high: int = 0

    def record(self, value: int, count: int = 1) -> None:
        """Count a value; a negative one counts as 0."""
        if value < 0:
            value = 0
        elif value > VALUE_MAX:
            value = VALUE_MAX
        if value < 256:
            self._counts[value] += count
        else:
            shift = value.bit_length() - 8
            self._counts[(shift << _SUB_BITS) + (value >> shift)] += count
        if not self.count or value < self.low:
            self.low = value
        if value > self.high:
            self.high = value
        self.count += count
        self.total += value * count

    def merge(self, other: Histogram) -> None:
        """Add what another has counted."""
        if not other.count:
            return
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.low = min(self.low, other.low) if self.count else other.low
        self.high = max(self.high, other.high)
        self.count += other.count
        self.total += other.total

    def copy(self) -> Histogram:
        """A histogram with the same counts."""
        twin = Histogram()
        twin.merge(self)
        return twin

    def reset(self) -> None:
        """Forget everything."""
        self._counts = [0] * _BUCKETS
        self.count = self.total = self.low = self.high = 0

    @property
    def mean(self) -> float:
        """The exact mean; 0 when there are no values."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """The value that ``percent`` of the values do not exceed (nearest rank).

        Returns:
            The top of the bucket that holds it, so never too low; 0 when there are no values.
        """
        if not self.count:
            return 0
        rank = max(1, -int(-self.count * percent // 100))
        if rank >= self.count:
            return self.high
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return min(_top(index), self.high)
        raise AssertionError("the counts do not add up")

    def curve(self) -> Iterator[tuple[int, float]]:
        """(value, share of the values up to it) for each bucket in use, ascending."""
        seen = 0
        for index, count in enumerate(self._counts):
            if count:
                seen += count
                yield min(_top(index), self.high), seen / self.count


def _top(index: int) -> int:
    """The largest value of a bucket."""
    if index < 2 * _SUB:
        return index
    shift = (index >> _SUB_BITS) - 1
    return ((index - (shift << _SUB_BITS) + 1) << shift) - 1
