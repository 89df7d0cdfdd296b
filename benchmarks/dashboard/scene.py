"""What is measured beside open tabs: a broker with a fleet, the tabs, and the record of it.

The fleet is sessions of which some are connected, each of those half of a pair that exchanges
messages at a steady rate.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

from benchmarks import record
from benchmarks.record import Check
from benchmarks.suite import told
from perdure.bench.child import wait_until
from perdure.bench.client import Client
from perdure.bench.loop import Link
from perdure.bench.ports import free_port
from perdure.bench.process import BrokerProcess, ProcessProbe
from perdure.bench.runner import Run
from perdure.bench.settings import Settings
from perdure.bench.target import Target
from perdure.pure import build

Rounds: TypeAlias = list[dict[str, Any]]
"""What each stretch found, by kind, for each round."""


class Fleet(NamedTuple):
    """Who is there.

    Attributes:
        sessions: with those that are away.
        connected: of them, half publishers and half subscribers.
        rate: messages per second, all publishers together.
        seconds: that a stretch takes.
        warmup_s: before each.
    """

    sessions: int
    connected: int
    rate: float
    seconds: float
    warmup_s: float = 0.0

    @property
    def settings(self) -> Settings:
        """Of the load."""
        return Settings(
            scenario="p2p",
            publishers=self.connected // 2,
            subscribers=self.connected // 2,
            rate=self.rate,
            duration_s=self.seconds,
            warmup_s=self.warmup_s,
        )


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


class Scene(NamedTuple):
    """A fleet at its broker, and the tabs beside it.

    Attributes:
        run: the load.
        publishers: who publishes.
        process: the broker.
        tabs: none is open yet.
    """

    run: Run
    publishers: list[Link]
    process: BrokerProcess
    tabs: TabProcess


@contextlib.contextmanager
def scene(directory: Path, fleet: Fleet) -> Iterator[Scene]:
    """Start a broker, its fleet and the tabs; all of them end with it."""
    settings = fleet.settings
    with _started_broker(directory) as (process, port, url, setup):
        run = Run(settings, Target("127.0.0.1", port, process=process), progress=told("perdure"))
        tabs: TabProcess | None = None
        try:
            publishers = _connected(run, fleet.sessions - fleet.connected)
            tabs = TabProcess(url, setup, f"{settings.root}-z00", f"{settings.root}-s000007")
            yield Scene(run, publishers, process, tabs)
        finally:
            if tabs is not None:
                tabs.end()
            run.close()


def recorded(
    name: str,
    fleet: Fleet,
    take: Callable[[Path], Rounds],
    checks_of: Callable[[Rounds], list[Check]],
    **settings: object,
) -> bool:
    """Measure, and write the record; returns whether every promise was kept.

    Args:
        name: of the record.
        fleet: who is there.
        take: measures, with a directory for the broker.
        checks_of: what the rounds say.
        settings: what else there is to know.
    """
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        rounds = take(Path(directory))
        return record.write(
            name,
            started_at,
            data=Path(directory),
            settings={
                "sessions": fleet.sessions,
                "connected": fleet.connected,
                "rate": fleet.rate,
                "seconds": fleet.seconds,
                "rounds": len(rounds),
                "build": build(),
                **settings,
            },
            checks=checks_of(rounds),
            values={"rounds": rounds},
        )


def _connected(run: Run, offline: int) -> list[Link]:
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


def _setup_link(log: Path) -> str:
    found = re.search(r"http://[^\s\"]*/ui/setup\?token=\w+", log.read_text(encoding="utf-8"))
    return "" if found is None else found[0]


@contextlib.contextmanager
def _started_broker(directory: Path) -> Iterator[tuple[BrokerProcess, int, str, str]]:
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
