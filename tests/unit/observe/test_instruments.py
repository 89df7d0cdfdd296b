"""Histograms put values where they belong; counters with labels."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from perdure.observe.instruments import HISTOGRAM_BUCKETS, Histogram, add, quantile


def test_histograms_are_merged() -> None:
    first, second = Histogram(), Histogram()
    for value in (1, 5, 1 << 40):
        first.observe(value)
    second.observe(5)
    second.merge(first.counts, first.sum)
    assert (second.count, second.sum) == (4, first.sum + 5)
    assert second.counts[3] == 2


def test_add_counts_by_key() -> None:
    counter: dict[tuple[str, ...], int] = {}
    add(counter, ("ok", "password"))
    add(counter, ("ok", "password"), 4)
    assert counter == {("ok", "password"): 5}


@given(st.integers(min_value=0, max_value=2**40))
def test_a_value_is_in_the_bucket_whose_bounds_hold_it(value: int) -> None:
    histogram = Histogram()
    histogram.observe(value)
    bucket = histogram.counts.index(1)
    assert histogram.count == 1
    assert histogram.sum == value
    if bucket < HISTOGRAM_BUCKETS:
        assert value <= 2**bucket
    if bucket > 0:
        assert value > 2 ** (bucket - 1)


@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_right_to_a_factor_of_two(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    found = quantile(histogram.counts, share)
    assert found is not None
    assert exact // 2 <= found <= max(2, 2 * exact)


def test_of_nothing_there_is_no_quantile() -> None:
    assert quantile(Histogram().counts, 0.5) is None
    last = Histogram()
    last.observe(1 << 40)
    assert quantile(last.counts, 1.0) == 1 << 28
