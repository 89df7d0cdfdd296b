"""What a stretch of a run is measured by."""

from __future__ import annotations

import os

import pytest

from perdure.bench.meter import Meter
from perdure.bench.process import ProcessProbe
from perdure.bench.stopwatch import Stopwatch


def test_a_stopwatch_counts_what_happened_since() -> None:
    meter = Meter()
    meter.acked = 10
    warnings: list[str] = []
    watch = Stopwatch(meter, None, warnings=warnings)
    watch.exclude(-4.0)
    meter.acked, meter.received = 30, 7
    meter.ack_ns.record(5_000_000)
    phase = watch.stop("x")
    assert (phase.done, phase.delivered) == (20, 7)
    assert phase.done_per_s == pytest.approx(20 / 4, rel=0.01)
    assert phase.ack is not None
    assert phase.ack.max_ms == 5.0
    assert phase.delivery is None
    assert phase.broker_cpu_s is None
    assert watch.stop("y", done=3).done == 3
    assert watch.stop("z", deliveries=True).done == 7


def test_time_in_which_nothing_happened_can_be_left_out() -> None:
    meter, warnings = Meter(), list[str]()
    watch = Stopwatch(meter, None, warnings=warnings)
    watch.exclude(-100.0)
    assert watch.stop("x").seconds >= 100


@pytest.mark.parametrize(("own", "warned"), [(0.95, True), (0.5, False)])
def test_a_busy_generator_is_told(
    own: float, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("perdure.bench.stopwatch.time.monotonic", lambda: now)
    monkeypatch.setattr("perdure.bench.stopwatch.time.process_time", lambda: now * own)
    meter, warnings = Meter(), list[str]()
    watch = Stopwatch(meter, None, warnings=warnings)
    now = 10.0
    phase = watch.stop("flow")
    assert phase.generator_cpu_share == own
    assert any("it may be the limit" in warning for warning in warnings) is warned


def test_points_of_the_series_are_told() -> None:
    told: list[str] = []
    meter = Meter()
    watch = Stopwatch(
        meter, None, warnings=[], progress=lambda what, done, detail: told.append(detail)
    )
    watch.tick("flow", 0.0)
    assert told == []
    watch.exclude(-2.0)
    meter.acked, meter.received = 200, 100
    watch.tick("flow", 0.5)
    assert told == ["100 in/s, 50 out/s"]
    ((at, rate_in, rate_out),) = watch.stop("flow").series
    assert (at, rate_in, rate_out) == pytest.approx((2.0, 100.0, 50.0), rel=0.02)


def test_a_known_process_is_measured() -> None:
    meter = Meter()
    watch = Stopwatch(meter, ProcessProbe(os.getpid()), has_acks=False, warnings=[])
    watch.exclude(-1.0)
    meter.received = 1000
    phase = watch.stop("flow", fan_out=2)
    assert phase.done == 1000
    assert phase.broker_cpu_s is not None
    assert phase.cpu_s_per_million is not None
    assert phase.memory_bytes
    assert phase.others_cpu_share is not None


@pytest.mark.parametrize(
    ("received", "fan_out", "warned"),
    [(94, 1, True), (96, 1, False), (180, 2, True), (0, 0, False)],
)
def test_subscribers_that_fall_behind_are_told(received: int, fan_out: int, warned: bool) -> None:
    meter, warnings = Meter(), list[str]()
    watch = Stopwatch(meter, None, warnings=warnings)
    meter.acked, meter.received = 100, received
    watch.stop("flow", fan_out=fan_out)
    assert any("fall behind" in warning for warning in warnings) is warned
