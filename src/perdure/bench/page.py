"""A report as one HTML file: figures, plots side by side, and everything needed to repeat it.

No script, no font and no picture from elsewhere: the file can be sent and kept.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, final

from perdure.bench import plot, report
from perdure.bench.plot import Axis, Bar, Series
from perdure.bench.result import Phase, Result

STYLE: Final = """
:root{--ink:#1b1f24;--soft:#59636e;--paper:#fff;--rule:#d8dee4;
--c0:#0b6e99;--c1:#c2571a;--c2:#3f7d3a;--c3:#7a4fa3;--c4:#a3324f;--c5:#6b6b1f}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4ae;--paper:#12161b;--rule:#30363d;
--c0:#5bb8e0;--c1:#f0995c;--c2:#7fc77a;--c3:#b894e0;--c4:#ec7f9b;--c5:#c9c95a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1.5rem}
figure{margin:0}svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}
svg text.head{font-size:14px;fill:var(--ink)}
svg .grid{stroke:var(--rule)}svg polyline{fill:none;stroke-width:2}
svg .spread{stroke:var(--ink);fill:none;stroke-width:1.5}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1rem;padding:0;margin:.2rem 0}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
.warn{border-left:4px solid var(--c1);padding-left:.7rem}
pre{background:color-mix(in srgb,var(--ink) 6%,var(--paper));padding:.7rem;overflow-x:auto}
"""


_KEY: Final = "solid: delivered; dashed: acknowledged"


@final
class _Group:
    """Runs of one broker with one load.

    Attributes:
        name: what tells it from the others.
        runs: one, or the rounds of a comparison.
        colour: number of its colour.
    """

    def __init__(self, name: str, runs: list[Result], colour: int) -> None:
        self.name = name
        self.runs = runs
        self.colour = colour

    @property
    def middle(self) -> Result:
        """The run with the median throughput: its curves stand for all."""
        ranked = sorted(self.runs, key=lambda run: run.phases[0].done_per_s)
        return ranked[len(ranked) // 2]

    def phases(self) -> Iterator[tuple[str, Phase]]:
        """(label, phase) of the middle run."""
        for phase in self.middle.phases:
            several = len(self.middle.phases) > 1
            yield (f"{self.name} {phase.name}" if several else self.name), phase


def render(results: Sequence[Result], *, title: str) -> str:
    """The page of one run, or of several side by side; rounds of the same load are one group."""
    groups = _groups(results)
    warnings = report.folded([warning for result in results for warning in result.warnings])
    parts = [
        f"<h1>{escape(title)}</h1>",
        _machine(results[0]),
        *(f'<p class="warn">{escape(warning)}</p>' for warning in warnings),
        _plots(groups),
    ]
    for group in groups:
        for number, run in enumerate(group.runs, start=1):
            several = len(group.runs) > 1
            parts.append(_run(f"{group.name}, run {number}" if several else group.name, run))
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _groups(results: Sequence[Result]) -> list[_Group]:
    """Runs that differ in nothing but the time, together."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(_name(result, results), []).append(result)
    return [_Group(name, runs, colour) for colour, (name, runs) in enumerate(found.items())]


def _name(result: Result, results: Sequence[Result]) -> str:
    """The broker, and whatever of its load is not the same for all."""
    settings = result.settings
    if "=" in result.broker.name:
        # A variation is named after what is not the same.
        return result.broker.name
    parts = [result.broker.name]
    every = [run.settings for run in results]
    if len({one.scenario for one in every}) > 1:
        parts.append(settings.scenario)
    if len({one.version for one in every}) > 1:
        parts.append("5.0" if settings.version == 5 else "3.1.1")
    if len({one.qos for one in every}) > 1:
        parts.append(f"QoS {settings.qos}")
    if len({one.loop for one in every}) > 1:
        parts.append(settings.loop)
    if len({one.publishers for one in every}) > 1:
        parts.append(f"{settings.publishers:,} publishers")
    if len({one.offline for one in every}) > 1:
        parts.append(f"beside {settings.offline:,} offline")
    return " ".join(parts)


def _plots(groups: Sequence[_Group]) -> str:
    charts = [
        _against(groups),
        _percentiles(groups),
        _over_time(groups),
        _figure(groups, "Operations per second", "done_per_s", "{:,.0f}/s"),
        _figure(groups, "Broker CPU, seconds per million", "cpu_s_per_million", "{:.2f} s"),
    ]
    cells = "".join(f"<figure>{chart}</figure>" for chart in charts if chart)
    return f'<div class="plots">{cells}</div>'


def _against(groups: Sequence[_Group]) -> str:
    """Throughput against latency: a line for each broker, a point for each load and phase."""
    found: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        for _, phase in group.phases():
            latency = phase.delivery or phase.ack
            if latency is not None:
                point = (phase.done_per_s, latency.p99_ms)
                found.setdefault(group.middle.broker.name, []).append(point)
    drawn = [
        Series(name, sorted(points), colour) for colour, (name, points) in enumerate(found.items())
    ]
    return plot.lines(
        "Throughput against latency", Axis("messages per second"), Axis("p99, ms", "log"), drawn
    )


def _percentiles(groups: Sequence[_Group]) -> str:
    series = []
    for group in groups:
        for label, phase in group.phases():
            for what, latency in (("delivered", phase.delivery), ("acknowledged", phase.ack)):
                # A record of a comparison has no points.
                if latency is not None and latency.curve:
                    points = [(0.0, latency.curve[0][0])]
                    points += [(share, ms) for ms, share in latency.curve]
                    dashed = what == "acknowledged"
                    series.append(Series(label, points, group.colour, dashed))
    return plot.lines(
        "Latency by percentile",
        Axis("share of messages", "percentile"),
        Axis("ms", "log"),
        series,
        key=_KEY,
    )


def _over_time(groups: Sequence[_Group]) -> str:
    series = []
    for group in groups:
        for label, phase in group.phases():
            into = [(at, rate) for at, rate, _ in phase.series]
            out = [(at, rate) for at, _, rate in phase.series]
            if any(rate for _, rate in out):
                series.append(Series(label, out, group.colour))
            if any(rate for _, rate in into):
                series.append(Series(label, into, group.colour, dashed=True))
    return plot.lines("Over time", Axis("seconds"), Axis("messages per second"), series, key=_KEY)


def _figure(groups: Sequence[_Group], title: str, field: str, form: str) -> str:
    """Medians as bars, with the least and the most of the runs."""
    entries = []
    for group in groups:
        for label, phase in group.phases():
            values = [getattr(run.phase(phase.name), field) for run in group.runs]
            known = [float(value) for value in values if value is not None]
            if known:
                median = statistics.median(known)
                text = form.format(median)
                entries.append(Bar(label, median, min(known), max(known), text, group.colour))
    return plot.bars(title, entries)


def _machine(result: Result) -> str:
    machine = result.machine
    return (
        f"<p>{escape(machine.cpu)}, {machine.cores} cores, {report.size(machine.memory_bytes)}; "
        f"{escape(machine.kernel)}; {escape(machine.python)}; data on {escape(machine.disk)}; "
        f"{escape(result.started_at)}</p>"
    )


def _run(name: str, result: Result) -> str:
    rows = report.phase_rows(result)
    latencies = report.latency_rows(result)
    listed = "".join(f"<li>{escape(line)}</li>" for line in report.notes(result))
    return "".join(
        (
            f"<h2>{escape(name)}</h2><p>{escape(report.header(result))}</p>",
            _table(report.PHASE_FIELDS, rows),
            _table(report.LATENCY_FIELDS, latencies) if latencies else "",
            f"<p>{escape(report.balance(result))}</p>",
            f"<ul>{listed}</ul>" if listed else "",
            f"<pre>{escape(result.broker.configuration)}</pre>"
            if result.broker.configuration
            else "",
        )
    )


def _table(fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(field.replace('_', ' '))}</th>" for field in fields)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(row[field]))}</td>" for field in fields) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
