"""Results are plain records."""

from __future__ import annotations

import msgspec

from perdure.bench.histogram import Histogram
from perdure.bench.result import Latency, Result
from tests.unit.bench.samples import result


def test_a_record_is_read_as_it_was_written() -> None:
    run = result()
    assert msgspec.json.decode(msgspec.json.encode(run), type=Result) == run


def test_percentiles_in_milliseconds() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.record(value * 1_000_000)
    latency = Latency.of(histogram)
    assert latency is not None
    assert latency.count == 1000
    assert 500 <= latency.p50_ms <= 504
    assert 990 <= latency.p99_ms <= 998
    assert latency.max_ms == 1000
    assert latency.mean_ms == 500.5
    assert len(latency.curve) <= 201
    assert latency.curve[-1] == (1000, 1)


def test_nothing_measured_is_none() -> None:
    assert Latency.of(Histogram()) is None


def test_a_phase_by_its_name() -> None:
    run = result()
    assert run.phase("flow") is run.phases[0]
