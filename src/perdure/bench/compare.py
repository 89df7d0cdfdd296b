"""Brokers side by side: interleaved runs, medians with their spread, ratios with theirs.

A machine is never quite the same for two minutes. So the brokers take turns, A B A B ..., each
run on a freshly started broker with an empty directory; a ratio is taken within each round, of
neighbours, and its median and extremes over the rounds are what is stated.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.bench.measure import measure
from perdure.bench.peers import PEERS, Peer
from perdure.bench.report import header
from perdure.bench.result import Broker, Latency, Machine, Result
from perdure.bench.settings import Settings
from perdure.bench.stopwatch import Progress
from perdure.bench.target import Target

MEASURES: Final[Mapping[str, str]] = {
    "done_per_s": "operations/s",
    "delivered_per_s": "delivered/s",
    "cpu_s_per_million": "broker CPU s per million",
    "ack_p50_ms": "acknowledged p50, ms",
    "ack_p99_ms": "acknowledged p99, ms",
    "delivery_p50_ms": "delivered p50, ms",
    "delivery_p99_ms": "delivered p99, ms",
    "memory_peak_bytes": "peak memory, bytes",
}
"""What is compared, and how it is called."""


@final
class Spread(msgspec.Struct, frozen=True):
    """Median and extremes over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """From at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@final
class Line(msgspec.Struct, frozen=True):
    """One measure of one phase, for one broker.

    Attributes:
        ratio: the first broker's value as a multiple of this one's, in the same round; None for
            the first itself and where there is nothing to divide.
    """

    phase: str
    measure: str
    broker: str
    value: Spread
    ratio: Spread | None


@final
class Comparison(msgspec.Struct, frozen=True):
    """A record: what was asked, on what, what was found, every run.

    Attributes:
        name: what was compared.
        machine: where.
        brokers: who, the first is what the others are compared with.
        skipped: brokers that could not take part, and why.
        lines: medians, spreads and ratios.
        runs: every run, in the order in which they were made.
    """

    name: str
    started_at: str
    machine: Machine
    settings: Settings
    rounds: int
    brokers: list[Broker]
    skipped: dict[str, str]
    lines: list[Line]
    runs: list[Result]


def available(names: Sequence[str], version: int) -> tuple[list[Peer], dict[str, str]]:
    """(peers that can take part, why the others cannot)."""
    taking, skipped = [], {}
    for name in names:
        peer = PEERS[name]
        if version not in peer.speaks:
            skipped[name] = "does not speak MQTT 5.0 in the versions known here"
        elif peer.program() is None:
            skipped[name] = "not installed"
        else:
            taking.append(peer)
    return taking, skipped


def compare(
    name: str,
    settings: Settings,
    peers: Sequence[Peer],
    *,
    rounds: int,
    skipped: Mapping[str, str] = {},
    programs: Mapping[str, str] = {},
    progress: Callable[[str], Progress | None] = lambda _: None,
) -> Comparison:
    """Run every peer in turn, ``rounds`` times.

    Args:
        name: of the record.
        settings: the same for all.
        peers: the first is what the others are compared with.
        rounds: how often.
        skipped: told in the record.
        programs: executables to use instead of the installed ones, by peer.
        progress: makes what is told of one run's progress, from a few words about it.

    Raises:
        BenchError: a run failed.
    """
    runs: list[Result] = []
    for number in range(1, rounds + 1):
        for peer in peers:
            tell = progress(f"{peer.name} {number}/{rounds}")
            runs.append(_one(settings, peer, programs.get(peer.name), tell))
    return Comparison(
        name=name,
        started_at=runs[0].started_at,
        machine=runs[0].machine,
        settings=settings,
        rounds=rounds,
        brokers=[run.broker for run in runs[: len(peers)]],
        skipped=dict(skipped),
        lines=summarise(runs),
        runs=runs,
    )


def summarise(runs: Sequence[Result]) -> list[Line]:
    """Medians and ratios of runs that took turns."""
    by_broker: dict[str, list[Result]] = {}
    for run in runs:
        by_broker.setdefault(run.broker.name, []).append(run)
    first = next(iter(by_broker.values()))
    lines = []
    for phase in [phase.name for phase in first[0].phases]:
        for what in MEASURES:
            base = [_value(run, phase, what) for run in first]
            for broker, its_runs in by_broker.items():
                values = [_value(run, phase, what) for run in its_runs]
                known = [value for value in values if value is not None]
                if not known:
                    continue
                ratios = [
                    other / value
                    for value, other in zip(values, base, strict=True)
                    if other is not None and value
                ]
                ratio = Spread.of(ratios) if ratios and its_runs is not first else None
                lines.append(Line(phase, what, broker, Spread.of(known), ratio))
    return lines


def record(comparison: Comparison) -> bytes:
    """The comparison as JSON, one run on each line, without the points of plots."""
    head = msgspec.structs.asdict(comparison)
    runs = [msgspec.json.encode(_without_points(run)) for run in head.pop("runs")]
    text = msgspec.json.format(msgspec.json.encode(head), indent=2).removesuffix(b"\n}")
    return text + b',\n  "runs": [\n    ' + b",\n    ".join(runs) + b"\n  ]\n}\n"


def _without_points(run: Result) -> Result:
    def bare(latency: Latency | None) -> Latency | None:
        return None if latency is None else msgspec.structs.replace(latency, curve=[])

    phases = [
        msgspec.structs.replace(
            phase, series=[], ack=bare(phase.ack), delivery=bare(phase.delivery)
        )
        for phase in run.phases
    ]
    return msgspec.structs.replace(run, phases=phases)


def markdown(comparison: Comparison) -> str:
    """A summary: tables of medians with spreads, and what makes them comparable or not."""
    machine, first = comparison.machine, comparison.brokers[0].name
    intro = (
        f"{comparison.started_at}, {machine.cpu}, {machine.cores} cores, {machine.kernel}, "
        f"{machine.python}, data on {machine.disk}. {comparison.rounds} rounds, interleaved; "
        f"median (least to most). After a semicolon: {first} as a multiple of it, taken within "
        "each round."
    )
    lines = [
        f"# {comparison.name}",
        "",
        intro,
        "",
        *(f"- {header(run)}" for run in comparison.runs[: len(comparison.brokers)]),
        *(f"- {name}: skipped, {reason}" for name, reason in comparison.skipped.items()),
        "",
    ]
    for phase in dict.fromkeys(line.phase for line in comparison.lines):
        names = [broker.name for broker in comparison.brokers]
        lines += [
            f"## {phase}",
            "",
            "| measure | " + " | ".join(names) + " |",
            "|---|" + "---|" * len(names),
        ]
        for what, title in MEASURES.items():
            found = {
                line.broker: line
                for line in comparison.lines
                if line.phase == phase and line.measure == what
            }
            if found:
                cells = [cell(found.get(name)) for name in names]
                lines.append(f"| {title} | " + " | ".join(cells) + " |")
        lines.append("")
    faults = [_faults(run) for run in comparison.runs]
    lines.append(
        "Lost, repeated, out of order, in every run: 0."
        if not any(faults)
        else "Faults: " + "; ".join(fault for fault in faults if fault) + "."
    )
    warnings = dict.fromkeys(
        f"{run.broker.name}: {text}" for run in comparison.runs for text in run.warnings
    )
    lines += ["", *(f"- {warning}" for warning in warnings)] if warnings else []
    return "\n".join(lines) + "\n"


def _one(settings: Settings, peer: Peer, program: str | None, progress: Progress | None) -> Result:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        started = peer.prepare(Path(directory), program=program)
        started.process.start()
        try:
            target = Target("127.0.0.1", started.port, process=started.process)
            return measure(
                settings,
                target,
                broker=started.broker,
                directory=Path(directory),
                progress=progress,
            )
        finally:
            started.process.stop()


def _value(run: Result, phase_name: str, what: str) -> float | None:
    phase = run.phase(phase_name)
    side, _, rest = what.partition("_")
    if side in ("ack", "delivery"):
        latency = phase.ack if side == "ack" else phase.delivery
        return None if latency is None else float(getattr(latency, rest))
    value = getattr(phase, what)
    return None if value is None or (what == "delivered_per_s" and not value) else float(value)


def cell(line: Line | None) -> str:
    """A measure as a table shows it: median, extremes, and the ratio."""
    if line is None:
        return ""
    value = line.value
    text = f"{_figure(value.median)} ({_figure(value.low)} to {_figure(value.high)})"
    if line.ratio is not None:
        ratio = line.ratio
        text += f"; {ratio.median:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    return text


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _faults(run: Result) -> str:
    totals = run.totals
    counts = {
        "lost": totals.lost,
        "repeated": totals.repeated,
        "out of order": totals.out_of_order,
        "unacknowledged": totals.unacknowledged,
        "sessions lost": totals.sessions_lost,
    }
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{run.broker.name}: {told}" if told else ""
