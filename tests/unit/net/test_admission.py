"""Bounds over all listeners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.auth.addresses import address_key
from perdure.broker.runtime.token_bucket import TokenBucket
from perdure.config.schema import LimitsConfig
from perdure.net.admission import Admission


def test_connections_in_all() -> None:
    admission = Admission(LimitsConfig(connections_max=2))
    assert admission.admit("a", now_s=0) == ""
    assert admission.admit("b", now_s=0) == ""
    assert admission.admit("c", now_s=0) == "connections_max"
    admission.release("a")
    assert admission.admit("c", now_s=0) == ""
    assert admission.connections == 2


def test_connections_from_one_address() -> None:
    admission = Admission(LimitsConfig(connections_per_ip_max=1))
    assert admission.admit("a", now_s=0) == ""
    assert admission.admit("a", now_s=0) == "connections_per_ip_max"
    assert admission.admit("b", now_s=0) == ""
    admission.release("a")
    assert admission.admit("a", now_s=0) == ""


def test_connections_in_one_second() -> None:
    admission = Admission(LimitsConfig(connect_rate=2))
    answers = [admission.admit("a", now_s=at) for at in (5.0, 5.0, 5.0, 5.5, 5.5, 100.0, 100.0)]
    assert answers == ["", "", "connect_rate", "", "connect_rate", "", ""]
    assert admission.admit("a", now_s=100.0) == "connect_rate"


def test_addresses_of_one_ipv6_site_count_as_one() -> None:
    admission = Admission(LimitsConfig(connections_per_ip_max=2))
    assert admission.admit("2001:db8:1:2::1", now_s=0) == ""
    assert admission.admit("2001:db8:1:2::2", now_s=0) == ""
    assert admission.admit("2001:db8:1:2:ffff::3", now_s=0) == "connections_per_ip_max"
    assert admission.admit("2001:db8:1:3::1", now_s=0) == ""
    admission.release("2001:db8:1:2::1")
    assert admission.admit("2001:db8:1:2:ffff::3", now_s=0) == ""


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


def test_new_limits_hold_at_once_and_keep_who_is_connected() -> None:
    admission = Admission(LimitsConfig())
    for _ in range(3):
        assert admission.admit("a", now_s=0) == ""
    admission.configure(LimitsConfig(connections_max=2))
    assert admission.admit("a", now_s=0) == "connections_max"
    admission.configure(LimitsConfig(connect_rate=1))
    assert admission.admit("a", now_s=1.0) == ""
    assert admission.admit("a", now_s=1.0) == "connect_rate"
    assert admission.connections == 4


ADDRESSES = st.sampled_from(["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", "2001:db8::1"])


@given(st.lists(st.tuples(st.booleans(), ADDRESSES), max_size=60))
def test_counts_follow_a_naive_model(steps: list[tuple[bool, str]]) -> None:
    admission = Admission(LimitsConfig(connections_max=5, connections_per_ip_max=3))
    model: list[str] = []
    for arrives, address in steps:
        if arrives:
            same = sum(address_key(one) == address_key(address) for one in model)
            allowed = len(model) < 5 and same < 3
            assert (admission.admit(address, now_s=0) == "") == allowed
            if allowed:
                model.append(address)
        elif address in model:
            admission.release(address)
            model.remove(address)
        assert admission.connections == len(model)


def test_a_listener_has_limits_of_its_own() -> None:
    """In place of the broker's: tighter or wider, or none."""
    admission = Admission(LimitsConfig(connections_per_ip_max=1, connect_rate=1))
    assert admission.admit("10.0.0.7", now_s=0) == ""
    assert admission.admit("10.0.0.7", now_s=9) == "connections_per_ip_max"
    for _ in range(5):
        assert admission.admit("10.0.0.7", now_s=0, per_ip_max=0, paced=False) == ""
    own = TokenBucket(2)
    found = [admission.admit("10.0.0.7", now_s=0, per_ip_max=9, pace=own) for _ in range(4)]
    assert found == ["", "", "connect_rate", "connect_rate"]
    assert admission.admit("10.0.0.7", now_s=9, per_ip_max=3) == "connections_per_ip_max"
