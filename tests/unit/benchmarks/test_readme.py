"""The figures in the README come from the records, between two marks."""

from __future__ import annotations

import pytest
from benchmarks.readme import BEGIN, END, block, replaced
from benchmarks.targets import Findings, figure

from tests.unit.bench.samples import latency
from tests.unit.benchmarks.test_targets import comparison

FOUND = Findings(
    {},
    {
        name: comparison(name, perdure=150_000, mosquitto=75_000, perdure__qos_2=60_000)
        for name in ("p2p-1000-saturated", "p2p-1000-sparse")
    },
)


def test_saturated_and_sparse_are_apart_and_variations_are_left_out() -> None:
    saturated, sparse = block(FOUND).split("At a fixed rate")
    assert "| | perdure 1.2.3 | mosquitto 1.2.3 |" in saturated
    assert "| p2p, 1000 pairs, messages/s | 150,000 | 75,000 |" in saturated
    assert "fan-in" not in saturated
    ms = figure(latency(1, 2, 3).p50_ms)
    assert f"| PUBACK after, p50, ms | {ms} | {ms} |" in sparse
    assert "qos=2" not in block(FOUND)


def test_the_block_is_replaced_and_what_is_around_it_stays() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = replaced(text, FOUND)
    assert once.startswith(f"before\n{BEGIN}\n\nMedians")
    assert once.endswith(f"\n{END}\nafter\n")
    assert "old" not in once
    assert replaced(once, FOUND) == once


def test_a_readme_without_marks_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no marks"):
        replaced("before", FOUND)


def test_without_records_there_are_no_figures() -> None:
    assert block(Findings({}, {})) == ""
