"""A result as text for a terminal: what was asked, what was found, what to doubt.

Rows come as plain values, so that tables, tab-separated lines and JSON say the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.bench.expectations import Verdict
from perdure.bench.result import Latency, Phase, Result
from perdure.bench.settings import Settings

Row = Mapping[str, Any]

PHASE_FIELDS: Final = (
    "phase",
    "seconds",
    "done",
    "done_per_s",
    "delivered_per_s",
    "lag_p50",
    "lag_p99",
    "cpu_s_per_million",
    "broker_cpu",
    "generator_cpu",
    "others_cpu",
    "memory_peak",
)
_PERCENT: Final = re.compile(r"\d+(?:\.\d+)?%")
LATENCY_FIELDS: Final = ("phase", "latency", "p50", "p90", "p99", "p99.9", "max", "mean")


def header(result: Result) -> str:
    """One line that names everything the figures depend on."""
    settings, broker = result.settings, result.broker
    version = "MQTT 5.0" if settings.version == 5 else "MQTT 3.1.1"
    parts = [
        f"{settings.scenario}: {_clients(settings)}",
        f"{version} QoS {settings.qos}",
        "durable sessions" if settings.durable else "clean sessions",
    ]
    if settings.scenario not in ("conn", "idle"):
        parts += [f"{settings.size} B", settings.loop]
    idle = [
        f"{count:,} {what}"
        for what, count in (
            ("offline sessions", settings.offline),
            ("retained", settings.retained),
            ("recorded", settings.recorded),
        )
        if count
    ]
    parts += [f"beside {' and '.join(idle)}"] if idle else []
    name = f"{broker.name} {broker.version}".strip()
    return f"{name} ({broker.durability}); {', '.join(parts)}; seed {settings.seed}"


def folded(warnings: Sequence[str]) -> list[str]:
    """Warnings that differ in a percentage only, as one with the least and the most."""
    alike: dict[str, list[str]] = {}
    for warning in warnings:
        alike.setdefault(_PERCENT.sub("%", warning), []).append(warning)
    return [_fold(some) for some in alike.values()]


def _fold(alike: Sequence[str]) -> str:
    if len(alike) == 1:
        return alike[0]
    columns = zip(*(_PERCENT.findall(warning) for warning in alike), strict=True)
    spreads = iter([sorted(column, key=lambda text: float(text[:-1])) for column in columns])

    def spread(_: re.Match[str]) -> str:
        values = next(spreads)
        return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"

    return f"{_PERCENT.sub(spread, alike[0])} ({len(alike)} runs)"


def phase_rows(result: Result) -> list[Row]:
    """What each phase did and what it took."""
    return [
        {
            "phase": phase.name,
            "seconds": f"{phase.seconds:.2f}",
            "done": f"{phase.done:,}",
            "done_per_s": f"{phase.done_per_s:,.0f}",
            "delivered_per_s": f"{phase.delivered_per_s:,.0f}" if phase.delivered else "",
            "lag_p50": duration(phase.delivery.p50_ms) if phase.delivery else "",
            "lag_p99": duration(phase.delivery.p99_ms) if phase.delivery else "",
            "cpu_s_per_million": _number(phase.cpu_s_per_million),
            "broker_cpu": _share(phase.broker_cpu_share),
            "generator_cpu": _share(phase.generator_cpu_share),
            "others_cpu": _share(phase.others_cpu_share),
            "memory_peak": size(phase.memory_peak_bytes),
        }
        for phase in result.phases
    ]


def latency_rows(result: Result) -> list[Row]:
    """Percentiles of each phase."""
    return [
        {
            "phase": phase.name,
            "latency": what,
            "p50": duration(latency.p50_ms),
            "p90": duration(latency.p90_ms),
            "p99": duration(latency.p99_ms),
            "p99.9": duration(latency.p999_ms),
            "max": duration(latency.max_ms),
            "mean": duration(latency.mean_ms),
        }
        for phase in result.phases
        for what, latency in _latencies(phase)
    ]


def balance(result: Result) -> str:
    """One line: what became of every message."""
    totals = result.totals
    parts = [
        f"sent {totals.sent:,}",
        f"acknowledged {totals.acked:,}",
        f"received {totals.received:,}",
        f"lost {totals.lost:,}",
        f"repeated {totals.repeated:,}",
        f"out of order {totals.out_of_order:,}",
    ]
    parts += [
        f"{what} {count:,}"
        for what, count in (
            ("refused", totals.refused),
            ("unacknowledged", totals.unacknowledged),
            ("foreign", totals.foreign),
            ("sessions lost", totals.sessions_lost),
        )
        if count
    ]
    return ", ".join(parts)


def _of_nodes(phase: Phase, what: str) -> str:
    """A figure of each node of a cluster; empty = there is none."""
    return ", ".join(
        f"node {name.removeprefix('node').removesuffix(what)} {value:.1f} us"
        for name, value in phase.extra.items()
        if name.endswith(what)
    )


def notes(result: Result, verdicts: Sequence[Verdict] = ()) -> list[str]:
    """Further lines: what only some phases have, warnings, expectations."""
    lines = []
    for phase in result.phases:
        if "bytes_each" in phase.extra:
            lines.append(f"{phase.name}: {size(int(phase.extra['bytes_each']))} for each")
        used = _of_nodes(phase, "_cpu_us")
        if used:
            lines.append(f"{phase.name}: CPU for each message: {used}")
        added = _of_nodes(phase, "_added_us")
        if added:
            lines.append(f"{phase.name}: of that beyond what a node takes at rest: {added}")
        apply = _of_nodes(phase, "_apply_us")
        if apply:
            lines.append(f"{phase.name}: CPU to apply a message of the log: {apply}")
        if "restart_s" in phase.extra:
            lines.append(f"{phase.name}: listened again after {phase.extra['restart_s']:.2f} s")
        if phase.late_p99_ms is not None:
            late = duration(phase.late_p99_ms)
            lines.append(f"{phase.name}: the generator itself was late by {late} (p99)")
    lines += [f"warning: {warning}" for warning in result.warnings]
    for verdict in verdicts:
        found = "no such value" if math.isnan(verdict.found) else f"{verdict.found:g}"
        lines.append(f"expected {verdict.text}: {'met' if verdict.is_met else 'MISSED'} ({found})")
    return lines


def duration(ms: float) -> str:
    """Milliseconds as people read them."""
    if ms < 1:
        return f"{ms * 1000:.0f} µs"
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"
    return f"{ms / 1000:.2f} s"


def size(count: int | None) -> str:
    """Bytes as people read them."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _latencies(phase: Phase) -> list[tuple[str, Latency]]:
    both = (("acknowledged", phase.ack), ("delivered", phase.delivery))
    return [(what, latency) for what, latency in both if latency is not None]


def _clients(settings: Settings) -> str:
    match settings.scenario:
        case "p2p":
            return f"{settings.publishers:,} pairs"
        case "cluster":
            return f"{settings.publishers:,} pairs, {len(settings.nodes):,} nodes"
        case "conn" | "idle":
            return f"{settings.subscribers:,} clients"
        case "offline":
            return f"{settings.subscribers:,} sessions x {settings.messages:,} messages"
        case "replay":
            return f"{settings.subscribers:,} devices x 4 metrics x {settings.messages:,} messages"
        case _:
            group = " of one shared group" if settings.shared else ""
            return (
                f"{settings.publishers:,} publishers, {settings.subscribers:,} subscribers{group}"
            )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
