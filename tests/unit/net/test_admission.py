"""Bounds over all listeners."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=60))
def test_counts_follow_a_naive_model(steps: list[tuple[bool, str]]) -> None:
    admission = Admission(LimitsConfig(connections_max=5, connections_per_ip_max=3))
    model: list[str] = []
    for arrives, address in steps:
        if arrives:
            allowed = len(model) < 5 and model.count(address) < 3
            assert (admission.admit(address, now_s=0) == "") == allowed
            if allowed:
                model.append(address)
        elif address in model:
            admission.release(address)
            model.remove(address)
        assert admission.connections == len(model)
