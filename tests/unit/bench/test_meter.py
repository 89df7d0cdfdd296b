"""The meter."""

from __future__ import annotations

from perdure.bench.meter import Meter


def test_latencies_begin_anew_and_counts_go_on() -> None:
    meter = Meter()
    meter.acked = 3
    for histogram in (meter.ack_ns, meter.delivery_ns, meter.late_ns):
        histogram.record(5)
    meter.reset_latencies()
    assert (meter.ack_ns.count, meter.delivery_ns.count, meter.late_ns.count) == (0, 0, 0)
    assert meter.acked == 3
