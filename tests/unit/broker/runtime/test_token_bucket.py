"""Buckets against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.runtime.token_bucket import TokenBucket


def test_burst_then_rate() -> None:
    bucket = TokenBucket(10, 3, now_us=1_000)
    assert [bucket.try_take(1, 1_000) for _ in range(4)] == [True, True, True, False]
    assert not bucket.try_take(1, 100_999)
    assert bucket.try_take(1, 101_000)
    assert not bucket.try_take(1, 101_000)


def test_burst_defaults_to_a_second_and_is_a_ceiling() -> None:
    bucket = TokenBucket(5)
    assert bucket.try_take(5, 0)
    assert bucket.try_take(5, 3_600_000_000)
    assert not bucket.try_take(1, 3_600_000_000)


def test_credit_is_paid_back_in_time() -> None:
    bucket = TokenBucket(1000, 100)
    assert bucket.take(100, 0) == 0
    assert bucket.take(50, 0) == 50_000
    assert bucket.take(0, 20_000) == 30_000
    assert bucket.take(0, 50_000) == 0
    assert not bucket.try_take(1, 50_000)


def test_wait_is_rounded_up() -> None:
    bucket = TokenBucket(3, 1)
    assert bucket.take(2, 0) == 333_334


def test_time_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1, 1, now_us=5_000_000)
    assert bucket.try_take(1, 5_000_000)
    assert not bucket.try_take(1, 1_000_000)
    assert not bucket.try_take(1, 5_500_000)
    assert bucket.try_take(1, 6_000_000)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, -1)])
def test_bucket_that_makes_no_sense(rate: int, burst: int) -> None:
    with pytest.raises(ValueError, match="bucket"):
        TokenBucket(rate, burst)


steps = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3_000_000)), max_size=40)


@given(st.integers(1, 1000), st.integers(1, 100), steps)
def test_no_more_passes_than_burst_and_rate_allow(
    rate: int, burst: int, asked: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate, burst)
    now_us = passed = 0
    for n, pause_us in asked:
        now_us += pause_us
        if bucket.try_take(n, now_us):
            passed += n
        assert passed * 1_000_000 <= burst * 1_000_000 + rate * now_us


@given(st.integers(1, 1000), st.integers(1, 100), steps)
def test_who_waits_as_told_has_no_debt_left(
    rate: int, burst: int, asked: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate, burst)
    now_us = 0
    for n, pause_us in asked:
        now_us += pause_us
        wait_us = bucket.take(n, now_us)
        if wait_us:
            assert bucket.take(0, now_us + wait_us - 1) > 0
        now_us += wait_us
        assert bucket.take(0, now_us) == 0
