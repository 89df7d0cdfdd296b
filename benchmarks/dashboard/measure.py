"""A fleet, a steady rate of messages, and tabs that are opened and closed again beside it.

A broker with 100,000 sessions, 1,000 of them connected and publishing in pairs. Stretches without
tabs, with their exact requests and with a real browser take turns in one run, so that what else the
machine does meets all three. A browser takes CPU of the same machine that the broker runs on, which
nobody's does in earnest: so it has only what nobody else wants (``tabs``), and what the broker
itself spends for the tabs is told too.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.dashboard.scene import Fleet, Rounds, Scene, recorded, scene
from benchmarks.record import Check, check
from perdure.bench import proc
from perdure.bench.result import Phase

FLEET: Final = Fleet(sessions=100_000, connected=1_000, rate=1_000.0, seconds=10.0, warmup_s=2.0)
ROUNDS: Final = 5
WITHOUT: Final = "without"
KINDS: Final = {"replayed": "their requests alone", "chromium": "in Chromium on this machine"}
_MORE: Final = 1.1
_TICKS: Final = 100


def _own_cpu_s(pid: int) -> float:
    """CPU of one process without its children, seconds."""
    return sum(int(field) for field in proc.stat_fields(pid)[11:13]) / _TICKS


def _rounds(at: Scene, rounds: int) -> Rounds:
    kinds = [WITHOUT, *(kind for kind in KINDS if kind != "chromium" or shutil.which(kind))]
    found = []
    for number in range(rounds):
        turn = number % len(kinds)
        found.append({kind: _stretch(at, kind) for kind in (*kinds[turn:], *kinds[:turn])})
    totals = at.run.totals()
    assert totals.lost + totals.repeated + totals.out_of_order == 0, totals
    return found


def _stretch(at: Scene, kind: str) -> dict[str, float]:
    run, tabs, pid = at.run, at.tabs, at.process.pid
    if kind != WITHOUT:
        tabs.tell(kind)
    pids = [each for each in proc.family(pid) if each != pid]
    before = (_own_cpu_s(pid), sum(map(_own_cpu_s, pids)), tabs.probe.cpu_s())
    phase = run.flow(at.publishers, kind)
    after = (_own_cpu_s(pid), sum(map(_own_cpu_s, pids)), tabs.probe.cpu_s())
    if kind != WITHOUT:
        tabs.tell("close")
    elapsed = phase.seconds + run.settings.warmup_s
    broker, http, browser = (b - a for a, b in zip(before, after, strict=True))
    return {
        **_latencies(phase),
        "broker_cpu": round(broker / elapsed * 100, 2),
        "http_cpu": round(http / elapsed * 100, 2),
        "browser_cpu": round(browser / elapsed * 100, 2),
        "others_cpu": round(100 * (phase.others_cpu_share or 0.0), 1),
        "per_s": phase.done_per_s,
    }


def _latencies(phase: Phase) -> dict[str, float]:
    assert phase.ack is not None
    assert phase.delivery is not None
    return {
        "ack_p50": phase.ack.p50_ms,
        "ack_p99": phase.ack.p99_ms,
        "delivery_p50": phase.delivery.p50_ms,
        "delivery_p99": phase.delivery.p99_ms,
    }


def checks_of(rounds: Sequence[dict[str, Any]]) -> list[Check]:
    """What the rounds say: each is compared with the stretch without tabs of the same round."""

    def values(kind: str, name: str) -> list[float]:
        return [one[kind][name] for one in rounds]

    checks = []
    labels = {"ack": "publish to PUBACK", "delivery": "publish to subscriber"}
    for what, said in labels.items():
        for share in ("p50", "p99"):
            name = f"{what}_{share}"
            checks.append(check(f"{said}, {share}, no tab", values(WITHOUT, name), "ms"))
            for kind, how in KINDS.items():
                if kind not in rounds[0]:
                    continue
                ratios = [one[kind][name] / one[WITHOUT][name] for one in rounds]
                typical = statistics.median(values(kind, name))
                bound = _MORE if kind == "replayed" and what == "ack" else None
                checks.append(
                    check(
                        f"{said}, {share}, five tabs, {how}: times that without",
                        ratios,
                        "x",
                        most=bound,
                        note=f"{typical:g} ms",
                    )
                )
    for kind, how in KINDS.items():
        if kind not in rounds[0]:
            continue
        for name, whose in (("broker", "the broker"), ("http", "the HTTP process")):
            more = [one[kind][f"{name}_cpu"] - one[WITHOUT][f"{name}_cpu"] for one in rounds]
            checks.append(check(f"CPU of {whose} for five tabs, {how}", more, "% of a core"))
    return checks


def take(directory: Path, rounds: int) -> Rounds:
    """Start a broker with a fleet, and measure."""
    with scene(directory, FLEET) as at:
        return _rounds(at, rounds)


def run(rounds: int = ROUNDS) -> bool:
    """Measure, and write the record."""
    return recorded("dashboard", FLEET, lambda where: take(where, rounds), checks_of, tabs=5)
