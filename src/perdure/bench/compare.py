"""Brokers side by side: interleaved runs, medians with their spread, ratios with theirs.

A machine is never quite the same for two minutes. So the contestants take turns, there and back
again, A B C C B A ...; a ratio is taken within each round, and its median and extremes over the
rounds are what is stated. Each run has a freshly started broker with an empty directory, or, where
it takes long to lay down what should lie idle in it, the brokers go on side by side and it is the
load that takes turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.bench.contestants import Contestant
from perdure.bench.errors import BenchError
from perdure.bench.measure import measure
from perdure.bench.peer import Peer, StartedPeer
from perdure.bench.peers import PEERS
from perdure.bench.report import folded, header
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
    "bytes_each": "memory of each, bytes",
    "restart_s": "restart, s",
}
"""What is compared, and how it is called."""
AGAIN_MAX: Final = 3
"""How often a run of a peer is taken again."""

_REPEATABLE: Final = ("p2p", "fanin", "fanout")
"""Scenarios that leave a broker as they found it."""


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
        settings: of the first; each run has its own.
        rounds: runs of each.
        brokers: who, the first is what the others are compared with.
        skipped: brokers that could not take part, and why.
        lines: medians, spreads and ratios.
        runs: every run, in the order in which they were made.
        kept: the brokers went on from round to round.
        again: runs of others that failed and were taken again, and why.
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
    kept: bool = False
    again: list[str] = msgspec.field(default_factory=list)


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
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    keep: bool = False,
    skipped: Mapping[str, str] = {},
    progress: Callable[[str], Progress | None] = lambda _: None,
) -> Comparison:
    """Let contestants take turns, ``rounds`` times.

    Args:
        name: of the record.
        contestants: the first is what the others are compared with.
        rounds: how often.
        keep: the brokers go on from round to round.
        skipped: told in the record.
        progress: makes what is told of one run's progress, from a few words about it.

    Raises:
        BenchError: a run failed, or the scenario cannot be repeated on a broker that goes on.
    """
    if keep and any(one.settings.scenario not in _REPEATABLE for one in contestants):
        raise BenchError(f"brokers go on only between runs of {', '.join(_REPEATABLE)}")
    runs: list[Result] = []
    again: list[str] = []
    with ExitStack() as stack:
        stands = [_Stand(one, stack if keep else None) for one in contestants]
        for number in range(1, rounds + 1):
            for stand in stands if number % 2 else reversed(stands):
                what = f"{stand.contestant.name} {number}/{rounds}"
                runs.append(_run(stand, progress, what, None if stand is stands[0] else again))
    return Comparison(
        name=name,
        started_at=runs[0].started_at,
        machine=runs[0].machine,
        settings=contestants[0].settings,
        rounds=rounds,
        brokers=[run.broker for run in runs[: len(contestants)]],
        skipped=dict(skipped),
        lines=summarise(runs),
        runs=runs,
        kept=keep,
        again=again,
    )


def _run(
    stand: _Stand,
    progress: Callable[[str], Progress | None],
    what: str,
    again: list[str] | None,
) -> Result:
    """One run; a peer's that fails is taken again, and told in ``again``.

    A peer that lets a client go at the wrong moment would else cost the whole comparison.
    """
    for _ in range(AGAIN_MAX):
        try:
            return stand.run(progress(what))
        except BenchError as error:
            if again is None or stand.is_kept:
                raise
            again.append(f"{what}: {error}")
    return stand.run(progress(what))


@final
class _Stand:
    """A contestant's broker: one for each run, or one for all of them.

    Args:
        contestant: whose.
        stack: ends the broker that goes on; None = each run has its own.
    """

    def __init__(self, contestant: Contestant, stack: ExitStack | None) -> None:
        self.contestant = contestant
        self._stack = stack
        self._kept: tuple[Target, StartedPeer, Path] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether its broker goes on from run to run."""
        return self._stack is not None

    def run(self, progress: Progress | None) -> Result:
        """Measure once."""
        if self._stack is None:
            with ExitStack() as stack:
                return self._measure(self._start(stack), progress)
        if self._kept is None:
            self._kept = self._start(self._stack)
        return self._measure(self._kept, progress)

    def _start(self, stack: ExitStack) -> tuple[Target, StartedPeer, Path]:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-")))
        started = self.contestant.prepare(directory)
        stack.callback(started.process.stop)
        started.process.start()
        goes_on = self._stack is not None
        target = Target("127.0.0.1", started.port, process=started.process, goes_on=goes_on)
        return target, started, directory

    def _measure(
        self, where: tuple[Target, StartedPeer, Path], progress: Progress | None
    ) -> Result:
        target, started, directory = where
        return measure(
            self.contestant.settings,
            target,
            broker=started.broker,
            directory=directory,
            progress=progress,
        )


def summarise(runs: Sequence[Result]) -> list[Line]:
    """Medians and ratios of runs that took turns."""
    by_broker: dict[str, list[Result]] = {}
    for run in runs:
        by_broker.setdefault(run.broker.name, []).append(run)
    first = next(iter(by_broker.values()))
    lines = []
    names = dict.fromkeys(phase.name for run in runs for phase in run.phases)
    for phase in names:
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
        f"{machine.python}, data on {machine.disk}. {comparison.rounds} rounds, interleaved"
        f"{', on brokers that went on' if comparison.kept else ''}; "
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
        *(f"- taken again: {reason}" for reason in comparison.again),
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
    warnings = folded(
        [f"{run.broker.name}: {text}" for run in comparison.runs for text in run.warnings]
    )
    lines += ["", *(f"- {warning}" for warning in warnings)] if warnings else []
    return "\n".join(lines) + "\n"


def _value(run: Result, phase_name: str, what: str) -> float | None:
    phase = next((phase for phase in run.phases if phase.name == phase_name), None)
    if phase is None:
        return None
    side, _, rest = what.partition("_")
    if side in ("ack", "delivery"):
        latency = phase.ack if side == "ack" else phase.delivery
        return None if latency is None else float(getattr(latency, rest))
    if what in phase.extra:
        return phase.extra[what]
    value = getattr(phase, what, None)
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
    counted = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{run.broker.name}: {counted}" if counted else ""
