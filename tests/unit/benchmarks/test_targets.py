"""Targets find their figures in the records, and say which bound these keep."""

from __future__ import annotations

import pytest
from benchmarks.record import Record, check
from benchmarks.suite import PARTS, PURE
from benchmarks.targets import TARGETS, Findings, Target, figure, table

from perdure.bench.compare import Comparison, Spread, summarise
from perdure.bench.contestants import vary
from perdure.bench.result import Totals
from tests.unit.bench.samples import result

EMPTY = Findings({}, {})


def comparison(name: str, **rates: float) -> Comparison:
    """Perdure and others, one round; a name with ``__`` is a variation."""
    runs = [
        result(name=who.replace("__", " ").replace("_", "="), done_per_s=rate, cpu=rate / 100)
        for who, rate in rates.items()
    ]
    return Comparison(
        name=name,
        started_at=runs[0].started_at,
        machine=runs[0].machine,
        settings=runs[0].settings,
        rounds=1,
        brokers=[run.broker for run in runs],
        skipped={},
        lines=summarise(runs),
        runs=runs,
    )


def target(*, is_most: bool) -> Target:
    bounds = (8, 4) if is_most else (4, 8)
    return Target("x", *bounds, "KiB", lambda _: None, "memory", is_most=is_most, limit="physics")


@pytest.mark.parametrize(
    ("value", "most", "least"), [(3, "aim", "short"), (5, "must", "must"), (9, "short", "aim")]
)
def test_which_bound_a_figure_keeps(value: float, most: str, least: str) -> None:
    found = Spread(value, 0, 100)
    assert target(is_most=True).verdict(found) == most
    assert target(is_most=False).verdict(found) == least
    assert target(is_most=True).verdict(None) == "not measured"


def test_figures_of_a_comparison() -> None:
    found = Findings({}, {"p": comparison("p", perdure=1000, peer=500, perdure__qos_2=400)})
    assert found.value("p", "flow", "done_per_s") == Spread(1000, 1000, 1000)
    assert found.against("p", "flow", "done_per_s", "peer") == Spread(2, 2, 2)
    assert found.of_ours("p", "flow", "done_per_s", "qos=2") == Spread(0.4, 0.4, 0.4)
    for nothing in (
        found.value("q", "flow", "done_per_s"),
        found.against("p", "flow", "done_per_s", "nats"),
        found.of_ours("p", "drain", "done_per_s", "qos=2"),
    ):
        assert nothing is None


def test_figures_of_a_record() -> None:
    record = Record(
        "memory", "2026-11-20", result().machine, {}, [check("an idle one", [6, 7, 9], "KiB")], {}
    )
    found = Findings({"memory": record}, {})
    assert found.check("memory", "an idle") == Spread(7, 6, 9)
    assert found.check("memory", "a busy") is None
    assert found.check("other", "an idle") is None


def test_faults_of_perdure_count_in_every_run() -> None:
    one = comparison("p", perdure=1000, peer=500, perdure__qos_2=400)
    one.runs[0].totals = Totals(lost=1, repeated=2)
    one.runs[1].totals = Totals(lost=500)
    one.runs[2].totals = Totals(out_of_order=4, sessions_lost=1)
    assert Findings({}, {"p": one}).faults() == Spread(8, 3, 5)
    assert EMPTY.faults() is None


def test_the_table_tells_what_falls_short_and_why() -> None:
    one = comparison("p2p-1000-saturated", perdure=600, mosquitto=100)
    text = table(Findings({}, {"p2p-1000-saturated": one}))
    cpu, _, against = text.splitlines()[2:5]
    assert "<= 5 | <= 2.5 | 6 (6 to 6) | **short** | `p2p-1000-saturated`" in cpu
    assert ">= 2.4 | >= 5 | 6 (6 to 6) | aim |" in against
    assert "- p2p, 1000 pairs, 64 B, saturated: broker CPU, compiled: objects and dicts" in text
    assert text.count("not measured") == len(TARGETS) - 3
    assert "What limits" not in table(EMPTY)


def test_a_machine_that_did_other_work_is_told() -> None:
    quiet, busy = comparison("quiet", perdure=1), comparison("busy", perdure=1, peer=1)
    for one, shares in ((quiet, [0.1]), (busy, [0.9, 0.5])):
        for run, share in zip(one.runs, shares, strict=True):
            run.phases[0].others_cpu_share = share
    found = Findings({}, {"quiet": quiet, "busy": busy})
    assert found.busy() == {"busy": 0.7}
    assert "meanwhile: 0.7 cores in `busy`. Rates" in table(found)
    assert "Other processes" not in table(Findings({}, {"quiet": quiet}))


def test_every_target_is_measured_by_something_that_exists() -> None:
    records = {"memory", "profiles", "all"}
    assert {one.record for one in TARGETS} <= {*PARTS, *records}
    for one in TARGETS:
        assert one.must == one.aim or one.is_most == (one.aim < one.must), one.what


def test_every_variation_can_be_made() -> None:
    for part in PARTS.values():
        for text in part.variations:
            assert vary(text, part.settings).name == f"perdure {text}"
    assert PURE in PARTS["p2p-1000-saturated"].variations


def test_figures_are_rounded() -> None:
    assert [figure(value) for value in (1234.5, 12.345, 0.01234)] == ["1,234", "12.3", "0.0123"]
