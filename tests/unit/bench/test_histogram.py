"""The histogram against exact percentiles of the same values."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from perdure.bench.histogram import RELATIVE_ERROR, VALUE_MAX, Histogram

durations = st.integers(0, VALUE_MAX)
samples = st.lists(durations, min_size=1, max_size=200)


def histogram_of(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(samples, st.floats(0.1, 100))
def test_a_percentile_is_never_too_low_and_at_most_one_bucket_too_high(
    values: list[int], percent: float
) -> None:
    rank = max(1, math.ceil(len(values) * percent / 100))
    exact = sorted(values)[rank - 1]
    found = histogram_of(values).percentile(percent)
    assert exact <= found <= exact * (1 + RELATIVE_ERROR)


@given(samples)
def test_count_sum_and_extremes_are_exact(values: list[int]) -> None:
    histogram = histogram_of(values)
    assert histogram.count == len(values)
    assert histogram.total == sum(values)
    assert (histogram.low, histogram.high) == (min(values), max(values))
    assert histogram.mean == sum(values) / len(values)
    assert histogram.percentile(100) == max(values)


@given(samples, samples)
def test_merging_is_recording_both(first: list[int], second: list[int]) -> None:
    merged = histogram_of(first)
    merged.merge(histogram_of(second))
    both = histogram_of(first + second)
    assert list(merged.curve()) == list(both.curve())
    assert (merged.low, merged.high, merged.total) == (both.low, both.high, both.total)


@given(durations, st.integers(1, 1000))
def test_a_count_is_so_many_records(value: int, count: int) -> None:
    once = Histogram()
    once.record(value, count)
    assert list(once.curve()) == list(histogram_of([value] * count).curve())
    assert once.count == count


@given(samples)
def test_the_curve_rises_to_one(values: list[int]) -> None:
    curve = list(histogram_of(values).curve())
    assert curve[-1] == (max(values), 1.0)
    assert curve == sorted(curve)


def test_what_is_out_of_range_counts_at_the_edge() -> None:
    histogram = histogram_of([-5, VALUE_MAX + 1])
    assert (histogram.low, histogram.high) == (0, VALUE_MAX)


def test_an_empty_one_has_zeros_and_reset_makes_one() -> None:
    histogram = histogram_of([7])
    copy = histogram.copy()
    histogram.reset()
    assert (histogram.count, histogram.percentile(50), histogram.mean) == (0, 0, 0.0)
    assert list(histogram.curve()) == []
    histogram.merge(Histogram())
    assert histogram.count == 0
    assert copy.percentile(50) == 7
