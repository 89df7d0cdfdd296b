"""The metrics as families of the library: what the text is compared with."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from perdure.observe.metric_info import PREFIX, MetricInfo
from perdure.observe.metric_table import TABLE, histograms, numbers
from perdure.observe.metrics import Metrics
from perdure.observe.metrics_text import buckets_of


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
