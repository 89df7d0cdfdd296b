"""A fleet, a steady rate of messages, and tabs that are opened and closed again beside it.

A broker with 100,000 sessions, 1,000 of them connected and publishing in pairs. Stretches without
tabs, with their exact requests and with a real browser take turns in one run, so that what else the
machine does meets all three. A browser takes CPU of the same machine that the broker runs on, which
nobody's does in earnest: so what the broker itself spends for the tabs is told too.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final

from benchmarks import record
from benchmarks.record import Check, check
from benchmarks.suite import told
from perdure.bench import proc
from perdure.bench.child import wait_until
from perdure.bench.client import Client
from perdure.bench.loop import Link
from perdure.bench.process import BrokerProcess, ProcessProbe, free_port
from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.settings import Settings
from perdure.bench.target import Target
from perdure.pure import build

SESSIONS: Final = 100_000
CONNECTED: Final = 1_000
RATE: Final = 1_000.0
SECONDS: Final = 10.0
ROUNDS: Final = 5
WITHOUT: Final = "without"
KINDS: Final = {"replayed": "their requests alone", "chromium": "in Chromium on this machine"}
_MORE: Final = 1.1
_TICKS: Final = 100


@final
class TabProcess:
    """``benchmarks.dashboard.tabs`` beside us.

    Args:
        arguments: of the process.
    """

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.dashboard.tabs", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._told("ready")
        self.probe = ProcessProbe(self._process.pid)

    def tell(self, what: str) -> None:
        """Have it done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        self._told("done")

    def end(self) -> None:
        """Close everything."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _told(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"the tabs said {line!r}, and not {word!r}")


def _own_cpu_s(pid: int) -> float:
    """CPU of one process without its children, seconds."""
    return sum(int(field) for field in proc.stat_fields(pid)[11:13]) / _TICKS


def fleet(run: Run, offline: int) -> list[Link]:
    """Durable sessions that are away, and pairs that publish; returns who publishes."""
    root, pairs = run.settings.root, run.settings.publishers
    sleepers = [
        Client(
            f"{root}-z{number:07}",
            version=4,
            filters=((f"{root}/offline/{number}", 1),),
            clean=False,
        )
        for number in range(offline)
    ]
    run.churn(sleepers, f"{len(sleepers):,} offline sessions")
    streams = [run.stream(f"{root}/p/{number:06}") for number in range(pairs)]
    subscribers = [
        run.subscriber(f"s{number:06}", stream.topic, streams=[stream])
        for number, stream in enumerate(streams)
    ]
    publishers = [run.publisher(f"p{number:06}", [stream]) for number, stream in enumerate(streams)]
    run.connect(subscribers, "connect subscribers")
    run.connect(publishers, "connect publishers")
    return publishers


def _rounds(
    process: BrokerProcess, port: int, url: str, setup: str, rounds: int
) -> list[dict[str, Any]]:
    """What each stretch found, by kind, for each round."""
    settings = Settings(
        scenario="p2p",
        publishers=CONNECTED // 2,
        subscribers=CONNECTED // 2,
        rate=RATE,
        duration_s=SECONDS,
        warmup_s=2.0,
    )
    target = Target("127.0.0.1", port, process=process)
    run = Run(settings, target, progress=told("perdure"))
    tabs: TabProcess | None = None
    try:
        publishers = fleet(run, SESSIONS - CONNECTED)
        tabs = TabProcess(url, setup, f"{settings.root}-z00", f"{settings.root}-s000007")
        kinds = [WITHOUT, *(kind for kind in KINDS if kind != "chromium" or shutil.which(kind))]
        found = []
        for number in range(rounds):
            turn = number % len(kinds)
            found.append(
                {
                    kind: _stretch(run, publishers, process.pid, tabs, kind)
                    for kind in (*kinds[turn:], *kinds[:turn])
                }
            )
        totals = run.totals()
        assert totals.lost + totals.repeated + totals.out_of_order == 0, totals
        return found
    finally:
        if tabs is not None:
            tabs.end()
        run.close()


def _stretch(
    run: Run, publishers: Sequence[Link], pid: int, tabs: TabProcess, kind: str
) -> dict[str, float]:
    if kind != WITHOUT:
        tabs.tell(kind)
    pids = [each for each in proc.family(pid) if each != pid]
    before = (_own_cpu_s(pid), sum(map(_own_cpu_s, pids)), tabs.probe.cpu_s())
    phase = run.flow(publishers, kind)
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


def _setup_link(log: Path) -> str:
    found = re.search(r"http://[^\s\"]*/ui/setup\?token=\w+", log.read_text(encoding="utf-8"))
    return "" if found is None else found[0]


@contextlib.contextmanager
def started_broker(directory: Path) -> Iterator[tuple[BrokerProcess, int, str, str]]:
    """A broker with a dashboard.

    Yields:
        The process, its port, the dashboard's address, the link that makes the first administrator.
    """
    port, http = free_port(), free_port()
    command = [sys.executable, "-m", "perdure", "serve", "--data", str(directory / "data")]
    command += ["--bind", f"127.0.0.1:{port}", "--set", f"http.bind=127.0.0.1:{http}"]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    process = BrokerProcess(
        command, host="127.0.0.1", port=port, directory=directory, environment=environment
    )
    process.start()
    try:
        log = directory / "broker.log"
        wait_until(lambda: _setup_link(log) != "", timeout_s=60, complaint="no HTTP process")
        yield process, port, f"http://127.0.0.1:{http}", _setup_link(log)
    finally:
        process.stop()


def take(directory: Path, rounds: int) -> list[dict[str, Any]]:
    """Start a broker with a fleet, and measure."""
    with started_broker(directory) as (process, port, url, setup):
        return _rounds(process, port, url, setup, rounds)


def run(rounds: int = ROUNDS) -> bool:
    """Measure, and write the record."""
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        found = take(Path(name), rounds)
        return record.write(
            "dashboard",
            started_at,
            data=Path(name),
            settings={
                "sessions": SESSIONS,
                "connected": CONNECTED,
                "rate": RATE,
                "seconds": SECONDS,
                "rounds": rounds,
                "build": build(),
                "tabs": 5,
            },
            checks=checks_of(found),
            values={"rounds": found},
        )
