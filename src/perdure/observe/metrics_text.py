"""``Metrics`` as text for Prometheus, without an object for each sample.

The library makes a record, a dictionary of labels and some strings of each of 700 samples each
time. Here all of a line but its number is made once. The text is the library's, byte for byte.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import Final, final

from prometheus_client.utils import floatToGoString

from perdure.observe.instruments import Histogram
from perdure.observe.metric_info import PREFIX, MetricInfo
from perdure.observe.metric_table import TABLE, histograms, numbers
from perdure.observe.metrics import Metrics
from perdure.observe.prometheus import buckets_of

BUILD_INFO: Final = MetricInfo(
    "build_info", "gauge", "What runs here.", ("version", "python", "backend")
)

_PLAIN_MAX: Final = 1_000_000
"""Above it the library writes exponents."""


@final
class MetricsText:
    """Writes the families of ``TABLE``.

    Args:
        metrics: what was counted.
        version: release.
        backend: of the storage.
    """

    def __init__(self, metrics: Metrics, *, version: str, backend: str) -> None:
        self._metrics = metrics
        self._build = version, platform.python_version(), backend
        self._heads = {info.name: _head(info) for info in (BUILD_INFO, *TABLE)}
        self._lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        """All of the lines but the numbers; of labels, which are few."""

    def families(self) -> Iterator[str]:
        """One family after the other."""
        yield self._heads[BUILD_INFO.name] + self._number(BUILD_INFO, self._build, 1)
        for info in TABLE:
            if info.kind == "histogram":
                lines = [self._histogram(info, *each) for each in histograms(self._metrics, info)]
            else:
                lines = [self._number(info, *each) for each in numbers(self._metrics, info)]
            yield self._heads[info.name] + "".join(lines)

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


def _head(info: MetricInfo) -> str:
    name = _sample_name(info)
    about = info.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {about}\n# TYPE {name} {info.kind}\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = sorted(zip(names, values, strict=True))
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{told}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
