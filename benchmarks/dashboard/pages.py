"""``python -m benchmarks.dashboard.pages [NAME...]``: what one open tab costs, page by page.

A small fleet on which a little flows, and a tab in Chromium that shows one page after the other; a
stretch without a tab begins each round. Told apart: what the broker, its HTTP process and the
browser spend beyond the stretch without, each in percent of a core. The browser's part is what the
page asks it to do: it draws on the CPU here, and on no screen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.dashboard.scene import Fleet, Rounds, Scene, TabProcess, recorded, scene
from benchmarks.dashboard.tabs import PAGES
from benchmarks.ending import end_in_order
from benchmarks.record import Check, check
from perdure.bench import proc
from perdure.bench.process import BrokerProcess

FLEET: Final = Fleet(sessions=3_000, connected=200, rate=50.0, seconds=9.0)
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


def _round(at: Scene, names: Sequence[str]) -> dict[str, Any]:
    run, tabs = at.run, at.tabs
    found = {}
    for name in (NONE, *names):
        if name != NONE:
            tabs.tell(f"page {name}")
        run.flow(at.publishers, f"settle {name}")
        begun_s, before = time.monotonic(), _spent(at.process, tabs)
        run.flow(at.publishers, name)
        elapsed_s, after = time.monotonic() - begun_s, _spent(at.process, tabs)
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


def take(directory: Path, names: Sequence[str], rounds: int) -> Rounds:
    """Start a broker with a fleet, and measure."""
    with scene(directory, FLEET) as at:
        at.tabs.tell(f"page {PAGES[0]}")  # the browser is there from now on
        at.tabs.tell("close")
        return [_round(at, names) for _ in range(rounds)]


def run(names: Sequence[str] = (), rounds: int = 1) -> bool:
    """Measure, and write the record."""
    return recorded(
        "dashboard-pages", FLEET, lambda where: take(where, names or PAGES, rounds), checks_of
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(not run(sys.argv[1:]))
