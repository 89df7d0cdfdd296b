"""What sessions cost that do nothing: at publish time, in memory, at a restart.

The broker is measured from outside, as ``perdure bench`` does. Sketch: an offline session is a few
rows on disk and no entry in the matcher, so a publish does not meet it, a restart reads no more
than counters and deadlines, and memory holds at most what the registry keeps of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import record
from perdure.bench.client import Client
from perdure.bench.peers import PEERS, StartedPeer
from perdure.bench.result import Phase, Totals
from perdure.bench.runner import Run
from perdure.bench.scenarios import SCENARIOS
from perdure.bench.settings import Settings
from perdure.bench.stopwatch import Progress
from perdure.bench.target import Target

KIB = 1024


def _told() -> Progress:
    """Progress as lines, one for each thing that begins."""
    last = ""

    def tell(what: str, done: float, detail: str) -> None:
        nonlocal last
        if what != last:
            last = what
            print(f"  {what} ...", flush=True)

    return tell


def _start(directory: Path) -> tuple[StartedPeer, Target]:
    started = PEERS["perdure"].prepare(directory)
    started.process.start()
    return started, Target("127.0.0.1", started.port, process=started.process)


def _sleepers(count: int) -> list[Client]:
    """Durable sessions that want everything that is published."""
    filters = (("+/p/+", 1),)
    return [
        Client(f"sleeper-{number:07}", version=4, filters=filters, clean=False)
        for number in range(count)
    ]


def _run(target: Target, settings: Settings) -> tuple[list[Phase], Totals]:
    run = Run(settings, target, progress=_told())
    try:
        return SCENARIOS[settings.scenario](run), run.totals()
    finally:
        run.close()


def publish_cost(*, sessions: int = 100_000, rounds: int = 7, duration_s: float = 4.0) -> bool:
    """The same p2p load on two brokers in turn: one empty, one with offline sessions."""
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        first, empty = _start(Path(directory) / "empty")
        second, full = _start(Path(directory) / "full")
        try:
            maker = Run(Settings(scenario="p2p"), full, progress=_told())
            maker.churn(_sleepers(sessions), f"{sessions:,} offline sessions")
            maker.close()
            figures: dict[str, list[float]] = {}
            for number in range(rounds):
                settings = Settings(
                    scenario="p2p",
                    publishers=100,
                    subscribers=100,
                    duration_s=duration_s,
                    warmup_s=1.0,
                    seed=1000 + number,
                )
                # Who goes first changes: the machine may change within a round too.
                pair: list[tuple[str, Target]] = [("empty", empty), ("full", full)]
                for name, target in pair if number % 2 == 0 else reversed(pair):
                    (phase,), totals = _run(target, settings)
                    assert totals.lost == totals.repeated == totals.out_of_order == 0, totals
                    figures.setdefault(f"{name} cpu_s_per_million", []).append(
                        phase.cpu_s_per_million or 0.0
                    )
                    figures.setdefault(f"{name} per_s", []).append(phase.done_per_s)
                    figures.setdefault("others_cpu_share", []).append(phase.others_cpu_share or 0.0)
        finally:
            first.process.stop()
            second.process.stop()
        full_cpu, empty_cpu = (figures[f"{name} cpu_s_per_million"] for name in ("full", "empty"))
        costs = zip(full_cpu, empty_cpu, strict=True)
        rates = zip(figures["empty per_s"], figures["full per_s"], strict=True)
        checks = [
            record.check(
                f"publish cost (broker CPU) with {sessions:,} offline sessions on a wildcard "
                "against none",
                [with_them / without for with_them, without in costs],
                "x",
                most=1.1,
            ),
            record.check(
                "the same in messages per second: none against with them",
                [without / with_them for without, with_them in rates],
                "x",
                note="wall time: other processes on the machine disturb it",
            ),
            record.check("CPU, none", empty_cpu, "s per million"),
            record.check("CPU, with them", full_cpu, "s per million"),
        ]
        return record.write(
            "publish-cost",
            started_at,
            data=Path(directory),
            settings={"sessions": sessions, "rounds": rounds, "pairs": 100, "window": 16},
            checks=checks,
            values=figures,
        )


def memory(*, connections: int = 9000, rounds: int = 3) -> bool:
    """Memory of connected idle durable sessions and of the same ones offline."""
    started_at = record.now()
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        for number in range(rounds):
            started, target = _start(Path(directory) / f"{number}")
            try:
                settings = Settings(scenario="idle", subscribers=connections, restart=True)
                phases, _ = _run(target, settings)
            finally:
                started.process.stop()
            for phase in phases:
                figures.setdefault(phase.name, []).append(phase.extra["bytes_each"] / KIB)
        return record.write(
            "memory",
            started_at,
            data=Path(directory),
            settings={"connections": connections, "rounds": rounds},
            checks=[
                record.check(
                    "a connected idle durable session", figures["connected"], "KiB", most=8
                ),
                record.check(
                    "an offline session, after a restart", figures["restarted"], "KiB", most=3
                ),
                record.check(
                    "an offline session, in the process that it was connected to",
                    figures["offline"],
                    "KiB",
                    note="the allocator keeps what connections used",
                ),
            ],
            values=figures,
        )


def restart(*, sessions: int = 100_000, rounds: int = 5) -> bool:
    """kill -9 and start with many offline sessions, until it listens; and what they then take."""
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        started, target = _start(Path(directory) / "data")
        try:
            empty_s = [target.restart() for _ in range(rounds)]
            empty_bytes = _resident(target)
            maker = Run(Settings(scenario="p2p"), target, progress=_told())
            maker.churn(_sleepers(sessions), f"{sessions:,} offline sessions")
            maker.close()
            full_s = [target.restart() for _ in range(rounds)]
            grown = _resident(target) - empty_bytes
            _resume(target, _sleepers(sessions)[:: sessions // 500])
        finally:
            started.process.stop()
        return record.write(
            "restart",
            started_at,
            data=Path(directory),
            settings={"sessions": sessions, "rounds": rounds},
            checks=[
                record.check(f"restart with {sessions:,} offline sessions", full_s, "s", most=5),
                record.check("restart with none", empty_s, "s"),
                record.check(
                    "an offline session after the restart", [grown / sessions / KIB], "KiB", most=3
                ),
            ],
            values={"full_s": full_s, "empty_s": empty_s, "grown_bytes": grown},
        )


def _resume(target: Target, clients: list[Client]) -> None:
    """Let some clients come back: what restarted so fast must still know their sessions."""
    run = Run(Settings(scenario="conn"), target)
    run.churn(clients, "resume")
    run.close()
    lost = [client.client_id for client in clients if not client.session_present]
    assert not lost, f"sessions lost in the restart: {lost[:5]}"


def _resident(target: Target) -> int:
    """Resident memory of the broker once it has settled."""
    run = Run(Settings(scenario="idle"), target)
    run.sleep(2.0, "settle")
    run.close()
    assert target.probe is not None
    return target.probe.memory_bytes()[0]


ALL: dict[str, Callable[[], bool]] = {
    "publish-cost": publish_cost,
    "memory": memory,
    "restart": restart,
}
