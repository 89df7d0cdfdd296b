"""Histograms put values where they belong; counters with labels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.observe.instruments import HISTOGRAM_BUCKETS, Histogram, add


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
