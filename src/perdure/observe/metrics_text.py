"""``Metrics`` as text for Prometheus or OpenMetrics, without an object for each sample.

The library makes a record, a dictionary of labels and some strings of each of 700 samples each
time. Here all of a line but its number is made once. The text is the library's, byte for byte; what
others than ``Metrics`` have counted, a registry of the library, it writes itself.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, cast, final

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry
from prometheus_client.utils import floatToGoString

from perdure.observe.instruments import HISTOGRAM_BUCKETS, Histogram
from perdure.observe.metric_info import PREFIX, MetricInfo
from perdure.observe.metric_table import TABLE, histograms, numbers
from perdure.observe.metrics import Metrics
from perdure.observe.process_numbers import ProcessCollector

BUILD_INFO: Final = MetricInfo(
    "build_info", "gauge", "What runs here.", ("version", "python", "backend")
)

_PLAIN_MAX: Final = 1_000_000
"""Above it the library writes exponents."""


FIRST_BUCKET_US: Final = 4
"""Buckets below 2**4 us are exported as one: no network path is that fast."""

OPEN_END: Final = "# EOF\n"
"""The last line of OpenMetrics."""


@final
class _One:
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """The family."""
        yield self._family


class Text(Protocol):
    """Metrics that can be written."""

    def families(self, *, is_open: bool = False) -> Iterator[str]:
        """One family after the other; the last piece ends the text.

        Args:
            is_open: as OpenMetrics.
        """
        ...


@final
class RegistryText:
    """Writes a registry of the library.

    Args:
        registry: what is told.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def families(self, *, is_open: bool = False) -> Iterator[str]:
        """See ``Text``."""
        for family in self._registry.collect():
            # Of a registry the text asks for its families, and nothing else.
            one = cast("CollectorRegistry", _One(family))
            if is_open:
                text = openmetrics.generate_latest(one).decode()  # type: ignore[no-untyped-call]
                yield text.removesuffix(OPEN_END)
            else:
                yield generate_latest(one).decode()
        if is_open:
            yield OPEN_END


@final
class MetricsText:
    """Writes the families of ``TABLE``, and those of a registry behind them.

    Args:
        metrics: what was counted.
        version: release.
        backend: of the storage.
        registry: what else is told; None = the process and the interpreter.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        version: str,
        backend: str,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._metrics = metrics
        self._build = version, platform.python_version(), backend
        self._beside = RegistryText(registry or process_registry())
        self._heads: Mapping[bool, Mapping[str, str]] = {
            is_open: {info.name: _head(info, is_open=is_open) for info in (BUILD_INFO, *TABLE)}
            for is_open in (False, True)
        }
        self._lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        """All of the lines but the numbers; of labels, which are few."""

    def families(self, *, is_open: bool = False) -> Iterator[str]:
        """See ``Text``."""
        heads = self._heads[is_open]
        yield heads[BUILD_INFO.name] + self._number(BUILD_INFO, self._build, 1)
        for info in TABLE:
            if info.kind == "histogram":
                lines = [self._histogram(info, *each) for each in histograms(self._metrics, info)]
            else:
                lines = [self._number(info, *each) for each in numbers(self._metrics, info)]
            yield heads[info.name] + "".join(lines)
        yield from self._beside.families(is_open=is_open)

    def _number(self, info: MetricInfo, values: tuple[str, ...], number: float) -> str:
        key = info.name, values
        lines = self._lines.get(key)
        if lines is None:
            lines = self._lines[key] = [_sample_name(info) + _labels(info.labels, values)]
        return f"{lines[0]} {_told(number)}\n"

    def _histogram(self, info: MetricInfo, values: tuple[str, ...], histogram: Histogram) -> str:
        buckets, total = buckets_of(histogram, seconds=info.name.endswith("_seconds"))
        key = info.name, values
        lines = self._lines.get(key)
        if lines is None:
            name, labels = f"{PREFIX}{info.name}", _labels(info.labels, values)
            lines = self._lines[key] = [
                f"{name}_bucket{_labels((*info.labels, 'le'), (*values, le))}" for le, _ in buckets
            ]
            lines += [f"{name}_count{labels}", f"{name}_sum{labels}"]
        found = [count for _, count in buckets]
        found += [found[-1], total]
        return "".join(
            f"{line} {_told(number)}\n" for line, number in zip(lines, found, strict=True)
        )


def _told(number: float) -> str:
    if isinstance(number, int) and 0 <= number < _PLAIN_MAX:
        return f"{number}.0"
    return floatToGoString(number)  # type: ignore[no-any-return, no-untyped-call]


def _sample_name(info: MetricInfo) -> str:
    name = f"{PREFIX}{info.name}"
    return f"{name.removesuffix('_total')}_total" if info.kind == "counter" else name


def _head(info: MetricInfo, *, is_open: bool) -> str:
    name = _sample_name(info)
    about = info.help.replace("\\", r"\\").replace("\n", r"\n")
    if is_open:  # a family has the name of its samples without their end
        name, about = name.removesuffix("_total"), about.replace('"', r"\"")
    return f"# HELP {name} {about}\n# TYPE {name} {info.kind}\n"


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


def process_registry() -> CollectorRegistry:
    """The process and the interpreter."""
    registry = CollectorRegistry()
    registry.register(ProcessCollector())
    prometheus_client.GCCollector(registry=registry)
    return registry


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = sorted(zip(names, values, strict=True))
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{told}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
