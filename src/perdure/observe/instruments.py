"""What metrics are made of: histograms, and counters with labels. Plain ints, nothing else."""

from __future__ import annotations

from typing import Final, final

HISTOGRAM_BUCKETS: Final = 28
"""Powers of two: up to 2**27 us = 134 s."""


@final
class Histogram:
    """Observations in buckets that are powers of two; one ``observe`` is O(1).

    Bucket ``i`` counts the values ``v`` with ``2**(i-1) < v <= 2**i`` (bucket 0: ``v <= 1``);
    the last one has everything above.
    """

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (HISTOGRAM_BUCKETS + 1)
        self.sum: int = 0

    def observe(self, value: int, count: int = 1) -> None:
        """Count a value (microseconds, or messages) that was observed once, or ``count`` times."""
        bucket = (value - 1).bit_length() if value > 1 else 0
        self.counts[min(HISTOGRAM_BUCKETS, bucket)] += count
        self.sum += value * count

    def merge(self, counts: list[int], total: int) -> None:
        """Add the observations of another histogram: its buckets and its sum."""
        assert len(counts) == len(self.counts)
        for bucket, number in enumerate(counts):
            self.counts[bucket] += number
        self.sum += total

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


def quantile(counts: list[int], share: float) -> int | None:
    """The value that a share of the observations does not exceed, as if each bucket were filled
    evenly: off by a factor of two at most; None = there are none.

    Args:
        counts: of the buckets of a histogram.
        share: above 0, up to 1.
    """
    left = share * sum(counts)
    if not left:
        return None
    for bucket, count in enumerate(counts):
        if count and left <= count:
            lowest = 1 << bucket >> 1
            return round(lowest + ((1 << bucket) - lowest) * left / count)
        left -= count
    return 1 << HISTOGRAM_BUCKETS


def add(counter: dict[tuple[str, ...], int], key: tuple[str, ...], count: int = 1) -> None:
    """Count in a ``dict`` metric."""
    counter[key] = counter.get(key, 0) + count
