"""``docs/reference/benchmarks.md``, written from the newest record of each name alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks import readme, sketch, targets
from benchmarks.record import DIRECTORY, Check, Record
from benchmarks.targets import Findings
from perdure.bench import report
from perdure.bench.compare import MEASURES, Comparison, Line, cell
from perdure.bench.result import Machine

PAGE = Path(__file__).parents[1] / "docs/reference/benchmarks.md"

INTRO = """\
# Benchmarks

Written by `python -m benchmarks.summary` from the records in `benchmarks/records/`; every figure
on this page is in one of them, with the machine, the versions, the settings and the seed. Figures
are medians, with the least and the most in brackets. What missed its bound is shown as it was
found.

Measure on your own machine: `make bench` takes all records anew in about twenty minutes and
writes this page, `make bench BENCH=fanin-100` one of them. [Measure a broker](../howto/bench.md)
tells how to ask other questions, and [Profile the broker](../howto/profile.md) where time goes.

How it is measured: one generator process on the same machine holds all connections; every message
carries a counter and the time at which it was sent, so that what is lost, repeated or out of
order is counted for each publisher and topic. CPU is that of the broker's process with all its
threads, from the kernel. A machine that does other work disturbs rates and latencies much, CPU
for each message little; the records say how much of the machine others used.
"""


def newest(directory: Path) -> tuple[list[Record], list[Comparison]]:
    """The newest record of each name: files begin with their date."""
    latest: dict[str, Path] = {}
    for path in sorted(directory.glob("*.json")):
        latest[path.stem[11:]] = path
    records, comparisons = [], []
    for _, path in sorted(latest.items()):
        content = path.read_bytes()
        if b'"brokers"' in content:
            comparisons.append(msgspec.json.decode(content, type=Comparison))
        else:
            records.append(msgspec.json.decode(content, type=Record))
    return records, comparisons


def gathered(records: Sequence[Record], comparisons: Sequence[Comparison]) -> Findings:
    """The records by their names."""
    return Findings({one.name: one for one in records}, {one.name: one for one in comparisons})


def render(records: Sequence[Record], comparisons: Sequence[Comparison]) -> str:
    """The page."""
    findings = gathered(records, comparisons)
    parts = [INTRO]
    sketched = findings.records.get("stages")
    if sketched is not None:
        parts.append(sketch.render(sketched))
    parts += ["## What is to be reached", "", targets.table(findings), ""]
    for title, is_sparse in (("saturated", False), ("at a fixed rate", True)):
        chosen = [one for one in comparisons if bool(one.settings.rate) is is_sparse]
        if chosen:
            parts.append(f"## Beside other brokers, {title}\n")
            parts += [_comparison(one) for one in chosen]
    promised = [one for one in records if one is not sketched]
    if promised:
        parts.append("## Looked at by itself\n")
        parts += [_promises(one) for one in promised]
    return "\n".join(parts)


def _promises(record: Record) -> str:
    rows = [_row(check) for check in record.checks]
    build = f"Perdure {record.machine.perdure}."
    settings = ", ".join(f"{name} {value}" for name, value in record.settings.items())
    return "\n".join(
        (
            f"### {record.name}",
            "",
            f"{_where(record.started_at, record.machine)} {build} {settings}.",
            "",
            "| what | found | must be | kept |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    )


def _row(check: Check) -> str:
    found = f"{_figure(check.found)} {check.unit} ({_figure(check.low)} to {_figure(check.high)})"
    what = check.what + (f" ({check.note})" if check.note else "")
    kept = ("yes" if check.is_met else "**no**") if check.must else ""
    return f"| {what} | {found} | {check.must} | {kept} |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _comparison(found: Comparison) -> str:
    names = [broker.name for broker in found.brokers]
    first = names[0]
    busy = [
        phase.others_cpu_share
        for run in found.runs
        for phase in run.phases
        if phase.others_cpu_share is not None
    ]
    intro = (
        f"{_where(found.started_at, found.machine)} {found.rounds} interleaved rounds; other "
        f"processes used {min(busy):.1f} to {max(busy):.1f} cores. Beside each figure of a peer, "
        f"{first} as a multiple of it."
    )
    balance = (
        f"Lost {_sum(found, 'lost')}, repeated {_sum(found, 'repeated')}, out of order "
        f"{_sum(found, 'out_of_order')}, in all runs of all brokers."
    )
    lines = [
        f"### {found.name}",
        "",
        intro,
        "",
        *(f"- {report.header(run)}" for run in found.runs[: len(names)]),
        *(f"- {name}: skipped, {reason}" for name, reason in found.skipped.items()),
        "",
        "| phase | measure | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
        *_rows(found.lines, names),
        "",
        balance,
        "",
    ]
    return "\n".join(lines)


def _rows(lines: Sequence[Line], names: Sequence[str]) -> Iterable[str]:
    found = {(line.phase, line.measure, line.broker): line for line in lines}
    for phase in dict.fromkeys(line.phase for line in lines):
        for measure, title in MEASURES.items():
            cells = [found.get((phase, measure, name)) for name in names]
            if any(cells):
                yield f"| {phase} | {title} | {' | '.join(cell(one) for one in cells)} |"


def _sum(found: Comparison, field: str) -> str:
    return f"{sum(getattr(run.totals, field) for run in found.runs):,}"


def _where(started_at: str, machine: Machine) -> str:
    return (
        f"{started_at[:10]}, {machine.cpu}, {machine.cores} cores, {machine.python}, data on "
        f"{machine.disk}."
    )


def write() -> None:
    """Write the page, and the figures in the README, from the records that are there."""
    records, comparisons = newest(DIRECTORY)
    PAGE.write_text(render(records, comparisons), encoding="utf-8")
    text = readme.PATH.read_text(encoding="utf-8")
    findings = gathered(records, comparisons)
    readme.PATH.write_text(readme.replaced(text, findings), encoding="utf-8")


if __name__ == "__main__":
    write()
