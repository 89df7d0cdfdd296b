"""What one message takes: system calls, syncs, bytes, CPU, and on which stage the CPU goes.

A broker of its own is loaded as ``perdure bench p2p`` does, once saturated and once at a fixed
rate, and ``perf`` looks at its process meanwhile (it does not slow it to speak of). Beside it
stands what this machine takes for a sync and for a message through a socket: the floor that no
broker goes below.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import msgspec

from benchmarks import record, samples
from benchmarks.suite import PARTS, told
from perdure.bench.measure import measure
from perdure.bench.peers import PEERS
from perdure.bench.result import Phase
from perdure.bench.settings import Settings
from perdure.bench.stopwatch import Progress
from perdure.bench.target import Target

LOADS: Final = {"saturated": "p2p-1000-saturated", "sparse": "p2p-1000-sparse"}
CALLS: Final = {
    "raw_syscalls:sys_enter": "system calls",
    "syscalls:sys_enter_read": "reads",
    "syscalls:sys_enter_write": "writes",
    "syscalls:sys_enter_writev": "gathered writes",
    "syscalls:sys_enter_epoll_pwait": "waits",
    "syscalls:sys_enter_futex": "futex calls",
    "syscalls:sys_enter_fdatasync": "syncs",
}
"""Trace points, and what a record calls them."""
_COMPILED: Final = Path(__file__).parents[1] / "compiled.txt"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LEAD_S: Final = 0.5
"""After the measured phase has begun, until we look."""
_LOOK_S: Final = 2.0
_SAMPLES_PER_S: Final = 999


class Found(msgspec.Struct, frozen=True):
    """What one message takes under one load.

    Attributes:
        per_s: messages acknowledged per second meanwhile.
        cpu_us: of all threads; ``loop_us`` of the thread of the event loop.
        calls: system calls, by what they are.
        read_bytes, written_bytes: through system calls; ``disk_bytes`` to the block device.
        share: of the CPU, by stage.
    """

    per_s: float
    cpu_us: float
    loop_us: float
    calls: dict[str, float]
    read_bytes: float
    written_bytes: float
    disk_bytes: float
    share: dict[str, float]


@final
class Observer:
    """Looks at a process while it is loaded: first counts what it calls, then samples it.

    Args:
        perf: the program.
        pid: the process.
        directory: for what perf writes.
    """

    def __init__(self, perf: str, pid: int, directory: Path) -> None:
        self._perf = perf
        self._pid = pid
        self._file = directory / "perf.data"
        self._before: dict[str, float] = {}
        self._after: dict[str, float] = {}
        self._window = (0.0, 0.0)
        self._calls: dict[str, float] = {}
        self._error = ""

    def run(self) -> None:
        """Look; takes ``_LEAD_S`` and twice ``_LOOK_S``."""
        begun = time.monotonic()
        time.sleep(_LEAD_S)
        self._before, start = self._numbers(), time.monotonic()
        told = self._call("stat", "-x,", "-e", ",".join(CALLS))
        self._after, stop = self._numbers(), time.monotonic()
        self._window = (start - begun, stop - begun)
        for line in told.splitlines():
            fields = line.split(",")
            if len(fields) > 2 and fields[2] in CALLS and fields[0].isdigit():
                self._calls[CALLS[fields[2]]] = float(fields[0])
        self._call(
            "record",
            "-q",
            "-F",
            str(_SAMPLES_PER_S),
            "-e",
            "cpu-clock",
            "-g",
            "-o",
            str(self._file),
        )

    def found(self, phase: Phase) -> Found:
        """What a message took.

        Args:
            phase: what the generator measured meanwhile.

        Raises:
            RuntimeError: perf could not look.
        """
        if self._error or not self._calls:
            raise RuntimeError(f"perf: {self._error or 'counted nothing'}")
        begun, ended = self._window
        per_s = statistics.mean(rate for at, rate, _ in phase.series if begun < at <= ended)
        messages = per_s * (ended - begun)
        grown = {name: (self._after[name] - self._before[name]) / messages for name in self._before}
        script = subprocess.run(
            [self._perf, "script", "-i", str(self._file), "-F", "comm,tid,ip,sym,dso"],
            capture_output=True,
            text=True,
            check=True,
        )
        modules = samples.rooms(
            line
            for line in _COMPILED.read_text(encoding="utf-8").splitlines()
            if line and not line.startswith("#")
        )
        return Found(
            per_s=per_s,
            cpu_us=grown["cpu_s"] * 1e6,
            loop_us=grown["loop_s"] * 1e6,
            calls={name: count / messages for name, count in self._calls.items()},
            read_bytes=grown["rchar"],
            written_bytes=grown["wchar"],
            disk_bytes=grown["write_bytes"],
            share=samples.shares(samples.parse(script.stdout.splitlines()), modules),
        )

    def _numbers(self) -> dict[str, float]:
        place = Path("/proc") / str(self._pid)
        lines = (place / "io").read_text(encoding="utf-8").splitlines()
        numbers = {name: float(value) for name, value in (line.split(": ") for line in lines)}
        numbers["cpu_s"] = _cpu_s(place)
        numbers["loop_s"] = _cpu_s(place / "task" / str(self._pid))
        return numbers

    def _call(self, *arguments: str) -> str:
        command = [self._perf, *arguments, "-p", str(self._pid), "--", "sleep", str(_LOOK_S)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self._error = done.stderr.strip()
        return done.stderr


def run() -> bool:
    """Measure both loads and the floors; nothing is promised here."""
    perf = shutil.which("perf")
    if perf is None:
        print("skipped: perf is not installed; the record of the last run stays")
        return True
    started_at = record.now()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        directory = Path(name)
        found = {load: look(perf, PARTS[part].settings, directory) for load, part in LOADS.items()}
        sync_us, socket_us = _sync_us(directory), _socket_us()
        checks = [check for load in LOADS for check in _checks(load, found[load])]
        checks += [
            record.check("floor: write 16 KiB and fdatasync, one after another", sync_us, "us"),
            record.check("floor: 64 B through a loopback socket, write and read", socket_us, "us"),
        ]
        return record.write(
            "stages",
            started_at,
            data=directory,
            settings={load: f"as in {part}" for load, part in LOADS.items()},
            checks=checks,
            values={load: msgspec.to_builtins(one) for load, one in found.items()},
        )


def look(perf: str, settings: Settings, directory: Path) -> Found:
    """Load a broker, and look at it."""
    settings = msgspec.structs.replace(settings, duration_s=2 * _LOOK_S + 4 * _LEAD_S)
    directory = Path(tempfile.mkdtemp(dir=directory))
    started = PEERS["perdure"].prepare(directory)
    started.process.start()
    try:
        observer = Observer(perf, started.process.pid, directory)
        thread = threading.Thread(target=observer.run)
        result = measure(
            settings,
            Target("127.0.0.1", started.port, process=started.process),
            broker=started.broker,
            directory=directory,
            progress=_when_it_flows(thread.start, told("stages")),
        )
        thread.join()
    finally:
        started.process.stop()
    return observer.found(result.phases[0])


def _when_it_flows(start: Callable[[], None], tell: Progress) -> Progress:
    """Progress that starts something when the measured phase begins."""
    waiting = True

    def told_(what: str, done: float, detail: str) -> None:
        nonlocal waiting
        tell(what, done, detail)
        if waiting and what == "flow":
            waiting = False
            start()

    return told_


def _checks(load: str, found: Found) -> list[record.Check]:
    """A record's lines for one load."""
    lines = [
        record.check(f"{load}: messages per second meanwhile", [found.per_s], "1/s"),
        record.check(f"{load}: broker CPU for a message", [found.cpu_us], "us"),
        record.check(f"{load}: of it in the thread of the loop", [found.loop_us], "us"),
        *(
            record.check(f"{load}: {what} for a message", [count], "")
            for what, count in found.calls.items()
        ),
        record.check(f"{load}: bytes read for a message", [found.read_bytes], "B"),
        record.check(f"{load}: bytes written for a message", [found.written_bytes], "B"),
        record.check(f"{load}: of them to the disk", [found.disk_bytes], "B"),
    ]
    return lines + [
        record.check(f"{load}, stage: {name}", [share * found.cpu_us], "us")
        for name, share in found.share.items()
        if share >= 0.01
    ]


def _cpu_s(place: Path) -> float:
    """User and system time of a process or a thread."""
    stat = (place / "stat").read_text(encoding="utf-8")
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _sync_us(directory: Path, rounds: int = 300) -> list[float]:
    """How long a write and its sync take, each by itself."""
    block, times = os.urandom(16 * 1024), []
    file = os.open(directory / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(rounds):
            begun = time.perf_counter()
            os.write(file, block)
            os.fdatasync(file)
            times.append((time.perf_counter() - begun) * 1e6)
    finally:
        os.close(file)
    return _middle(times)


def _socket_us(rounds: int = 20_000) -> list[float]:
    """How long a message takes through a socket of this machine, by one process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    times, message = [], bytes(64)
    with left, right:
        left.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(rounds):
            begun = time.perf_counter()
            left.send(message)
            right.recv(256)
            times.append((time.perf_counter() - begun) * 1e6)
    return _middle(times)


def _middle(times: list[float]) -> list[float]:
    """The middle of the values, without those that the scheduler made."""
    ordered = sorted(times)
    return ordered[len(ordered) // 10 : len(ordered) * 9 // 10]


ALL: Final[dict[str, Callable[[], bool]]] = {"stages": run}
