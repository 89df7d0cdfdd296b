"""The text of expectations, and what runs say to them."""

from __future__ import annotations

import math

import pytest

from perdure.bench.expectations import judge, parse
from perdure.bench.result import Phase
from perdure.errors import UsageError
from tests.unit.bench.samples import result


def met(text: str) -> list[bool]:
    return [verdict.is_met for verdict in judge(parse(text), result(lost=2))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99<61ms", True),
        ("p99<50ms", False),
        ("p50 <= 5.1 ms", True),
        ("p50>0.004s", True),
        ("ack_p99<3100us", True),
        ("ack_p99<2900us", False),
        ("max<1s", True),
        ("lost=2", True),
        ("lost==0", False),
        ("loss=0", False),
        ("dup=0", True),
        ("rate>=1k", True),
        ("done_per_s>0.002M", False),
        ("flow.delivered_per_s=1000", True),
        ("cpu_per_million<=3", True),
        ("memory_peak_bytes<=60MiB", True),
        ("memory_bytes<49MiB", False),
        ("broker_cpu_share<16%", True),
        ("seconds<11s", True),
        ("broker_cpu_s<1400ms", False),
    ],
)
def test_one_expectation(text: str, expected: bool) -> None:
    assert met(text) == [expected]


def test_several_are_judged_one_by_one() -> None:
    assert met("p99<61ms, lost=0,rate>1") == [True, False, True]
    assert met("") == []


def test_every_phase_must_meet_it_unless_one_is_named() -> None:
    run = result()
    run.phases.append(Phase(name="drain", seconds=1.0, done=5, done_per_s=5.0))
    (every,) = judge(parse("rate>=10"), run)
    assert (every.is_met, every.found) == (False, 5.0)
    assert judge(parse("flow.rate>=10"), run)[0].is_met
    assert judge(parse("drain.rate=5"), run)[0].is_met


def test_what_only_some_phases_have() -> None:
    run = result()
    run.phases[0].extra["restart_s"] = 1.5
    assert judge(parse("restart_s<2s"), run)[0].is_met
    assert not judge(parse("restart_s<1400ms"), run)[0].is_met


def test_a_value_that_the_run_does_not_have_is_a_miss() -> None:
    (verdict,) = judge(parse("drain.rate>1"), result())
    assert not verdict.is_met
    assert math.isnan(verdict.found)
    (verdict,) = judge(parse("cpu_per_million<9"), result(cpu=None))
    assert not verdict.is_met


def test_latencies_are_those_of_acknowledgements_where_nothing_was_delivered() -> None:
    run = result()
    run.phases[0].delivery = None
    assert judge(parse("p99<3.1ms"), run)[0].is_met


@pytest.mark.parametrize(
    "text",
    ["p99", "p99<", "p99<5", "p99<5k", "speed>1", "lost=0ms", "p99<5 min", "rate>-1", "a.b.c=1"],
)
def test_what_is_not_an_expectation_is_told(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)
