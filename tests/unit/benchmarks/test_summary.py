"""The page of benchmarks quotes the records, and is what the records say."""

from __future__ import annotations

from pathlib import Path

import msgspec
from benchmarks import readme
from benchmarks.record import DIRECTORY, Record, check
from benchmarks.summary import PAGE, gathered, newest, render

from perdure.bench.compare import Comparison, record, summarise
from perdure.bench.result import Result
from tests.unit.bench.samples import result


def comparison(*, rate: float = 0.0) -> Comparison:
    runs: list[Result] = [result(), result(name="peer", done_per_s=500.0)]
    for run in runs:
        run.settings = msgspec.structs.replace(run.settings, rate=rate)
        run.phases[0].others_cpu_share = 0.25
    return Comparison(
        name="p2p",
        started_at=runs[0].started_at,
        machine=runs[0].machine,
        settings=runs[0].settings,
        rounds=1,
        brokers=[run.broker for run in runs],
        skipped={"nats": "not installed"},
        lines=summarise(runs),
        runs=runs,
    )


def promise(*, found: float) -> Record:
    return Record(
        "restart",
        "2026-11-20T08:00:00+00:00",
        result().machine,
        {"sessions": 9},
        [check("restart", [found, found + 1], "s", most=5, note="cold")],
        {},
    )


def test_the_page_in_the_repository_is_that_of_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(*newest(DIRECTORY))


def test_the_figures_in_the_readme_are_those_of_the_records() -> None:
    text = readme.PATH.read_text(encoding="utf-8")
    assert text == readme.replaced(text, gathered(*newest(DIRECTORY)))


def test_a_promise_that_was_missed_is_shown() -> None:
    assert "| restart (cold) | 0.7 s (0.2 to 1.2) | <= 5 s | yes |" in render(
        [promise(found=0.2)], []
    )
    assert "| **no** |" in render([promise(found=9)], [])


def test_saturated_and_sparse_are_apart() -> None:
    page = render([], [comparison(rate=100.0), comparison()])
    saturated, sparse = page.split("at a fixed rate")
    assert "closed loop, window 16" in saturated
    assert "open loop, 100/s" in sparse
    assert "| flow | operations/s | 1,000 (1,000 to 1,000) | 500 (500 to 500); 2.00x" in saturated
    assert "other processes used 0.2 to 0.2 cores" in saturated
    assert "nats: skipped, not installed" in saturated
    assert "Lost 0, repeated 0, out of order 0" in saturated


def test_the_newest_record_of_each_name_counts(tmp_path: Path) -> None:
    for date, found in (("2026-11-19", 9.0), ("2026-11-20", 1.0)):
        content = msgspec.json.encode(promise(found=found))
        (tmp_path / f"{date}-restart.json").write_bytes(content)
    (tmp_path / "2026-11-20-p2p.json").write_bytes(record(comparison()))
    records, comparisons = newest(tmp_path)
    assert [one.checks[0].low for one in records] == [1.0]
    assert [one.name for one in comparisons] == ["p2p"]


def test_bounds() -> None:
    assert check("x", [1, 2, 9], "s", most=2).is_met
    assert not check("x", [1, 3, 9], "s", most=2).is_met
    assert check("x", [4], "x", least=4).must == ">= 4 x"
    assert not check("x", [3.9], "x", least=4).is_met
    assert check("x", [3.9], "x").must == ""
