"""``python -m benchmarks.dashboard.pages [NAME...]``: what one open tab costs, page by page.

A small fleet on which a little flows, and a tab in Chromium that shows one page after the other; a
stretch without a tab begins each round. Told apart: what the broker, its HTTP process and the
browser spend beyond the stretch without, each in percent of a core. The browser's part is what the
page asks it to do: it draws on the CPU here, and on no screen.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import record
from benchmarks.dashboard.measure import TabProcess, fleet, started_broker
from benchmarks.dashboard.tabs import PAGES
from benchmarks.record import Check, check
from benchmarks.suite import told
from perdure.bench import proc
from perdure.bench.process import BrokerProcess
from perdure.bench.runner import Run
from perdure.bench.settings import Settings
from perdure.bench.target import Target
from perdure.pure import build

SESSIONS: Final = 3_000
CONNECTED: Final = 200
RATE: Final = 50.0
SECONDS: Final = 9.0
WARMUP_S: Final = 3.0
NONE: Final = "none"
WHOSE: Final = ("broker", "http", "browser")
TAB_MAX: Final = 1.0
"""Percent of a core."""


def cpu_s(pid: int) -> float:
    """CPU of the threads that a process has, seconds; 10 ms, as ``stat`` has it, is half of what is
    looked for here."""
    spent = 0
    for task in (proc.PROC / str(pid) / "task").iterdir():
        try:
            spent += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue  # it ended meanwhile
    return spent / 1e9


def _spent(process: BrokerProcess, tabs: TabProcess) -> tuple[float, ...]:
    broker, *http = proc.family(process.pid)
    _, *browser = proc.family(tabs.probe.pid)
    return cpu_s(broker), sum(map(cpu_s, http)), sum(map(cpu_s, browser))


def _round(run: Run, publishers: Any, tabs: TabProcess, names: Sequence[str]) -> dict[str, Any]:
    process = run.target.process
    assert process is not None
    found = {}
    for name in (NONE, *names):
        if name != NONE:
            tabs.tell(f"page {name}")
        run.flow(publishers, f"settle {name}")
        begun_s, before = time.monotonic(), _spent(process, tabs)
        run.flow(publishers, name)
        elapsed_s, after = time.monotonic() - begun_s, _spent(process, tabs)
        shares = ((b - a) / elapsed_s * 100 for a, b in zip(before, after, strict=True))
        found[name] = dict(zip(WHOSE, (round(each, 3) for each in shares), strict=True))
        if name != NONE:
            tabs.tell("close")
    return found


def checks_of(rounds: Sequence[dict[str, dict[str, float]]]) -> list[Check]:
    """What a tab costs, and who of it how much."""
    checks = []
    for name in rounds[0]:
        if name == NONE:
            continue
        more = [{who: one[name][who] - one[NONE][who] for who in WHOSE} for one in rounds]
        parts = ", ".join(f"{who} {sum(e[who] for e in more) / len(more):.2f}" for who in WHOSE)
        totals = [sum(each.values()) for each in more]
        what = f"an open tab, {name}"
        checks.append(check(what, totals, "% of a core", most=TAB_MAX, note=parts))
    return checks


def take(directory: Path, names: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Start a broker with a fleet, and measure."""
    settings = Settings(
        scenario="p2p",
        publishers=CONNECTED // 2,
        subscribers=CONNECTED // 2,
        rate=RATE,
        duration_s=SECONDS,
        warmup_s=0.0,
    )
    with started_broker(directory) as (process, port, url, setup):
        run = Run(settings, Target("127.0.0.1", port, process=process), progress=told("perdure"))
        tabs: TabProcess | None = None
        try:
            publishers = fleet(run, SESSIONS - CONNECTED)
            tabs = TabProcess(url, setup, f"{settings.root}-z00", f"{settings.root}-s000007")
            tabs.tell(f"page {PAGES[0]}")  # the browser is there from now on
            tabs.tell("close")
            return [_round(run, publishers, tabs, names) for _ in range(rounds)]
        finally:
            if tabs is not None:
                tabs.end()
            run.close()


def run(names: Sequence[str] = (), rounds: int = 1) -> bool:
    """Measure, and write the record."""
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        found = take(Path(name), names or PAGES, rounds)
        return record.write(
            "dashboard-pages",
            started_at,
            data=Path(name),
            settings={
                "sessions": SESSIONS,
                "connected": CONNECTED,
                "rate": RATE,
                "seconds": SECONDS,
                "rounds": rounds,
                "build": build(),
            },
            checks=checks_of(found),
            values={"rounds": found},
        )


if __name__ == "__main__":
    sys.exit(not run(sys.argv[1:]))
