"""The figures in the README: a block between two marks, written from the records like the page."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from benchmarks.targets import Findings, figure
from perdure.bench.compare import Comparison

PATH: Final = Path(__file__).parents[1] / "README.md"
BEGIN: Final = "<!-- benchmarks: written by python -m benchmarks.summary -->"
END: Final = "<!-- benchmarks: end -->"

_SATURATED: Final = (
    ("p2p, 100 pairs, messages/s", "p2p-100-saturated", "flow", "done_per_s"),
    ("p2p, 1000 pairs, messages/s", "p2p-1000-saturated", "flow", "done_per_s"),
    (
        "the same, broker CPU seconds for a million",
        "p2p-1000-saturated",
        "flow",
        "cpu_s_per_million",
    ),
    ("fan-in, 100 to 1, messages/s", "fanin-100", "flow", "done_per_s"),
    ("fan-out, 1 to 100, deliveries/s", "fanout-100", "flow", "delivered_per_s"),
    ("1000 offline sessions, stored/s", "offline-1000", "store", "done_per_s"),
    ("the same, drained/s", "offline-1000", "drain", "done_per_s"),
    ("durable sessions, connects/s", "conn-5000", "connect", "done_per_s"),
)
_SPARSE: Final = (
    (
        "broker CPU seconds for a million",
        "p2p-1000-sparse",
        "flow",
        "cpu_s_per_million",
    ),
    ("PUBACK after, p50, ms", "p2p-1000-sparse", "flow", "ack_p50_ms"),
    ("PUBACK after, p99, ms", "p2p-1000-sparse", "flow", "ack_p99_ms"),
    ("delivered after, p50, ms", "p2p-1000-sparse", "flow", "delivery_p50_ms"),
)
_WIDTH: Final = 100
_Row = tuple[str, str, str, str]


def block(findings: Findings) -> str:
    """What stands between the marks."""
    machines = [found.machine for found in findings.comparisons.values()]
    if not machines:
        return ""
    machine = machines[0]
    kinds = "; ".join(dict.fromkeys(f"{each.cpu}, {each.cores} cores" for each in machines))
    return "\n".join(
        (
            "",
            _wrapped(
                f"Medians of interleaved runs, each row on one machine ({kinds}; "
                f"{machine.python}, data on {machine.disk}), QoS 1, 64 B, durable "
                "subscribers, each broker with what its acknowledgement means in the table above. "
                "Saturated, 16 messages of each publisher under way:"
            ),
            "",
            *_table(findings, _SATURATED),
            "",
            "At a fixed rate, 10,000 messages/s over 1000 pairs, where messages come one by one:",
            "",
            *_table(findings, _SPARSE),
            "",
            _wrapped(
                "[All figures](docs/reference/benchmarks.md), what each message takes, and what "
                "falls short of its target; `make bench` takes them anew."
            ),
            "",
        )
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False)


def _table(findings: Findings, rows: tuple[_Row, ...]) -> list[str]:
    brokers: dict[str, str] = {}
    for _, name, _, _ in rows:
        comparison = findings.comparisons.get(name)
        if comparison is not None:
            brokers.update(_brokers(comparison))
    lines = [f"| | {' | '.join(brokers.values())} |", "|---|" + "---|" * len(brokers)]
    for what, name, phase, measure in rows:
        found = [findings.value(name, phase, measure, broker) for broker in brokers]
        if any(found):
            cells = ("" if one is None else figure(one.median) for one in found)
            lines.append(f"| {what} | {' | '.join(cells)} |")
    return lines


def _brokers(comparison: Comparison) -> dict[str, str]:
    """Names of kinds of brokers, with their versions; no variations."""
    return {
        broker.name: f"{broker.name} {broker.version}".strip()
        for broker in comparison.brokers
        if "=" not in broker.name
    }


def replaced(text: str, findings: Findings) -> str:
    """A README with its block written anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"the README has no marks for the benchmarks ({begin or BEGIN})"
    return f"{before}{BEGIN}\n{block(findings)}\n{END}{after}"
