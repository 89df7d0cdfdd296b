"""Buckets against their definition, and the count of connections against a model."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.quotas import Admission, ConnectionQuota, TokenBucket, address_key


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


def test_limits_in_turn() -> None:
    quota = ConnectionQuota(connections_max=3, per_address_max=2, rate=4)
    assert [quota.admit("192.0.2.1", 0) for _ in range(3)] == [
        Admission.ADMITTED,
        Admission.ADMITTED,
        Admission.TOO_MANY_FROM_ADDRESS,
    ]
    assert quota.admit("192.0.2.2", 0) is Admission.ADMITTED
    assert quota.admit("192.0.2.3", 0) is Admission.TOO_MANY
    quota.release("192.0.2.2")
    assert quota.admit("192.0.2.3", 0) is Admission.ADMITTED
    quota.release("192.0.2.3")
    assert quota.admit("192.0.2.3", 0) is Admission.TOO_FAST
    assert quota.admit("192.0.2.3", 250_000) is Admission.ADMITTED
    assert (quota.count, quota.address_count) == (3, 2)


def test_reason_codes() -> None:
    assert {a.name: a.reason_code for a in Admission} == {
        "ADMITTED": 0x00,
        "TOO_MANY": 0x97,
        "TOO_MANY_FROM_ADDRESS": 0x97,
        "TOO_FAST": 0x9F,
    }


def test_limits_may_change_while_connections_are_in() -> None:
    quota = ConnectionQuota()
    for _ in range(3):
        assert quota.admit("192.0.2.1", 0) is Admission.ADMITTED
    quota.configure(connections_max=0, per_address_max=2, rate=0, now_us=0)
    assert quota.admit("192.0.2.1", 0) is Admission.TOO_MANY_FROM_ADDRESS
    assert quota.admit("192.0.2.2", 0) is Admission.ADMITTED
    for _ in range(2):
        quota.release("192.0.2.1")
    assert quota.admit("192.0.2.1", 0) is Admission.ADMITTED


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_address_key(address: str, key: str) -> None:
    assert address_key(address) == key


addresses = st.sampled_from(["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1"])


@given(st.lists(st.tuples(st.booleans(), addresses), max_size=60))
def test_counts_against_a_model(events: list[tuple[bool, str]]) -> None:
    quota = ConnectionQuota(connections_max=5, per_address_max=2)
    held: Counter[str] = Counter()
    for arrives, address in events:
        key = address_key(address)
        if arrives:
            admitted = quota.admit(address, 0) is Admission.ADMITTED
            assert admitted is (held.total() < 5 and held[key] < 2)
            held[key] += admitted
        elif held[key]:
            quota.release(address)
            held[key] -= 1
        assert quota.count == held.total()
        assert quota.address_count == sum(count > 0 for count in held.values())
