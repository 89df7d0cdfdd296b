"""What the last hour says of traffic, of how long it took, and of CPU."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.observe.metrics import Metrics
from perdure.server.administration import history
from perdure.server.administration.history import COUNTERS, GAUGES, STEP_LOOKS, Recorder


class Services:
    """Counters, and a clock of which each look is a second."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.clock = self
        self.now_us = 0

    def monotonic_us(self) -> int:
        return self.now_us

    wall_us = monotonic_us


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Services:
    made = Services()
    monkeypatch.setattr(history, "cpu_s", lambda: made.now_us / 4_000_000)
    return made


def look(recorder: Recorder, services: Any, times: int) -> None:
    for _ in range(times):
        services.now_us += 1_000_000
        recorder.look()


def test_rates_are_of_the_last_ten_seconds(services: Services) -> None:
    recorder = Recorder(services)  # type: ignore[arg-type]
    assert recorder.rates().messages_received is None
    recorder.look()
    services.metrics.publish_to_ack_seconds_1.observe(500_000, 1_000)
    look(recorder, services, STEP_LOOKS)
    slow = recorder.rates().ack_p99_us
    assert slow is not None
    assert 262_144 < slow <= 524_288
    services.metrics.messages_received_1 += 50
    services.metrics.publish_to_ack_seconds_1.observe(900, 60)
    services.metrics.publish_to_ack_seconds_2.observe(9_000, 40)
    look(recorder, services, STEP_LOOKS)
    rates = recorder.rates()
    assert (rates.window_s, rates.cpu_cores) == (10.0, 0.25)
    assert rates.ack_p50_us is not None
    assert rates.ack_p99_us is not None
    assert 512 < rates.ack_p50_us <= 1_024
    assert 8_192 < rates.ack_p99_us <= 16_384
    # What was slow before is not told any more, and of nothing there is no latency.
    look(recorder, services, STEP_LOOKS)
    assert (recorder.rates().ack_p50_us, recorder.rates().ack_p99_us) == (None, None)


def test_each_series_of_the_hour_has_a_point_for_ten_seconds(services: Services) -> None:
    recorder = Recorder(services)  # type: ignore[arg-type]
    recorder.look()
    services.metrics.publish_to_ack_seconds_1.observe(100, 10)
    look(recorder, services, STEP_LOOKS)
    look(recorder, services, STEP_LOOKS)
    found = recorder.history(3_600)
    assert set(found.series) == {*COUNTERS, *GAUGES}
    assert {len(values) for values in found.series.values()} == {2}
    assert found.series["cpu_cores"] == [0.25, 0.25]
    first, second = found.series["ack_p99_us"]
    assert 64 < first <= 128
    assert second == 0
