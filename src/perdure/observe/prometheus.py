"""The Prometheus view of ``Metrics``: one collector.

Reads the ints at scrape time, in the thread of ``metrics_server``; the broker's loop has no part.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import final

import prometheus_client
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from perdure.observe.instruments import HISTOGRAM_BUCKETS, Histogram
from perdure.observe.metric_info import PREFIX, MetricInfo
from perdure.observe.metric_table import TABLE, histograms, numbers
from perdure.observe.metrics import Metrics
from perdure.observe.process_numbers import ProcessCollector

FIRST_BUCKET_US = 4
"""Buckets below 2**4 us are exported as one: no network path is that fast."""


@final
class MetricsCollector(Collector):
    """Turns ``TABLE`` and a ``Metrics`` into metric families."""

    def __init__(self, metrics: Metrics, *, version: str, backend: str) -> None:
        self._metrics = metrics
        self._version = version
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        """All families, in table order; ``build_info`` first."""
        build = GaugeMetricFamily(
            f"{PREFIX}build_info", "What runs here.", labels=("version", "python", "backend")
        )
        build.add_metric((self._version, platform.python_version(), self._backend), 1)
        yield build
        for info in TABLE:
            yield self._family(info)

    def _family(self, info: MetricInfo) -> Metric:
        name = f"{PREFIX}{info.name}"
        if info.kind == "histogram":
            family = HistogramMetricFamily(name, info.help, labels=info.labels)
            for values, histogram in histograms(self._metrics, info):
                buckets, total = buckets_of(histogram, seconds=info.name.endswith("_seconds"))
                family.add_metric(values, buckets, total)
            return family
        kind = CounterMetricFamily if info.kind == "counter" else GaugeMetricFamily
        plain: CounterMetricFamily | GaugeMetricFamily = kind(name, info.help, labels=info.labels)
        for values, number in numbers(self._metrics, info):
            plain.add_metric(values, number)
        return plain


def buckets_of(histogram: Histogram, *, seconds: bool) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets as Prometheus wants them, and the sum."""
    # One copy: count and buckets of one scrape agree although the owner goes on counting.
    counts = list(histogram.counts)
    scale = 1_000_000 if seconds else 1
    first = FIRST_BUCKET_US if seconds else 0
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bucket in range(HISTOGRAM_BUCKETS):
        seen += counts[bucket]
        if bucket >= first:
            buckets.append((repr((1 << bucket) / scale), seen))
    buckets.append(("+Inf", seen + counts[HISTOGRAM_BUCKETS]))
    return buckets, histogram.sum / scale


def make_registry(metrics: Metrics, *, version: str, backend: str) -> CollectorRegistry:
    """A registry with the broker's metrics and the process's and the interpreter's own."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(metrics, version=version, backend=backend))
    register_process(registry)
    return registry


def register_process(registry: CollectorRegistry) -> None:
    """Add the process's and the interpreter's own to a registry."""
    registry.register(ProcessCollector())
    prometheus_client.GCCollector(registry=registry)
