"""Results for tests of what is made of them."""

from __future__ import annotations

from perdure.bench.histogram import Histogram
from perdure.bench.result import Broker, Latency, Machine, Phase, Result, Totals
from perdure.bench.settings import Settings


def latency(*values_ms: float) -> Latency:
    """Percentiles of some values."""
    histogram = Histogram()
    for value in values_ms:
        histogram.record(int(value * 1e6))
    made = Latency.of(histogram)
    assert made is not None
    return made


def result(
    *, name: str = "perdure", done_per_s: float = 1000.0, cpu: float | None = 3.0, lost: int = 0
) -> Result:
    """A run of one phase."""
    phase = Phase(
        name="flow",
        seconds=10.0,
        done=int(done_per_s * 10),
        done_per_s=done_per_s,
        delivered=10_000,
        delivered_per_s=1000.0,
        ack=latency(1, 2, 3),
        delivery=latency(4, 5, 60),
        cpu_s_per_million=cpu,
        broker_cpu_s=1.5,
        broker_cpu_share=0.15,
        memory_bytes=50 << 20,
        memory_peak_bytes=60 << 20,
        generator_cpu_share=0.5,
        series=[(0.2, 900.0, 800.0), (0.4, 1100.0, 1200.0)],
    )
    return Result(
        settings=Settings(scenario="p2p", publishers=10, subscribers=10),
        broker=Broker(name=name, version="1.2.3", durability="PUBACK after fsync"),
        machine=Machine(
            cpu="a cpu",
            cores=2,
            memory_bytes=8 << 30,
            kernel="Linux 6",
            python="CPython 3.11",
            perdure="0.1.0",
            disk="ext4",
        ),
        started_at="2026-11-20T08:00:00+00:00",
        phases=[phase],
        totals=Totals(sent=10_100, acked=10_100, received=10_100 - lost, lost=lost),
    )
