"""What sessions cost that do nothing: in memory, and at a restart (``suite`` has: at publish time).

The broker is measured from outside, as ``perdure bench`` does. Sketch: an offline session is a few
rows on disk and no entry in the matcher, so a publish does not meet it, a restart reads no more
than counters and deadlines, and memory holds at most what the registry keeps of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import record
from benchmarks.suite import told
from perdure.bench.client import Client
from perdure.bench.peer import StartedPeer
from perdure.bench.peers import PEERS
from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.scenarios import SCENARIOS
from perdure.bench.settings import Settings
from perdure.bench.target import Target

KIB = 1024


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


def _run(target: Target, settings: Settings) -> list[Phase]:
    run = Run(settings, target, progress=told("perdure"))
    try:
        return SCENARIOS[settings.scenario](run)
    finally:
        run.close()


def memory(*, connections: int = 9000, rounds: int = 1) -> bool:
    """Memory of connected idle durable sessions and of the same ones offline."""
    started_at = record.now()
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        for number in range(rounds):
            started, target = _start(Path(directory) / f"{number}")
            try:
                settings = Settings(scenario="idle", subscribers=connections, restart=True)
                phases = _run(target, settings)
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


def restart(*, sessions: int = 100_000, rounds: int = 3) -> bool:
    """kill -9 and start with many offline sessions, until it listens; and what they then take."""
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        started, target = _start(Path(directory) / "data")
        try:
            empty_s = [target.restart() for _ in range(rounds)]
            empty_bytes = _resident(target)
            maker = Run(Settings(scenario="p2p"), target, progress=told("perdure"))
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
    "memory": memory,
    "restart": restart,
}
