"""The broker as a process: its CPU and memory from ``/proc``, and one that we start ourselves.

CPU is that of all its threads and of its living and reaped children, as the kernel counts it, in
steps of ten milliseconds. Memory is resident memory of the process and its descendants.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

from perdure.bench.errors import BenchError

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.005
_GROUP_GONE_S: Final = 5.0
_LOG_LINES: Final = 10
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
_KIB_LINE: Final = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB$", re.MULTILINE)


@final
class ProcessProbe:
    """Looks at a process and its descendants.

    Args:
        pid: the broker's.

    Raises:
        BenchError: there is no such process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if not (_PROC / str(pid)).is_dir():
            raise BenchError(f"no process {pid}")

    def cpu_s(self) -> float:
        """CPU seconds, user and system, since it started."""
        ticks = 0
        for pid in self._family():
            try:
                stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            # After the name, which may hold anything: utime, stime, cutime, cstime are 14..17.
            fields = stat[stat.rindex(")") + 2 :].split()
            ticks += sum(int(field) for field in fields[11:15])
        return ticks / _TICKS

    def memory_bytes(self) -> tuple[int, int]:
        """(resident now, peak since it started)."""
        now = peak = 0
        for pid in self._family():
            try:
                status = (_PROC / str(pid) / "status").read_text(encoding="utf-8")
            except OSError:
                continue
            values = {name: int(kib) * 1024 for name, kib in _KIB_LINE.findall(status)}
            now += values.get("VmRSS", 0)
            peak += values.get("VmHWM", 0)
        return now, peak

    def _family(self) -> list[int]:
        family = [self.pid]
        for pid in family:
            try:
                for task in (_PROC / str(pid) / "task").iterdir():
                    children = (task / "children").read_text(encoding="utf-8")
                    family += [int(child) for child in children.split()]
            except OSError:
                continue
        return family


@final
class BrokerProcess:
    """A broker that the tool starts, and ends.

    Args:
        command: program and arguments.
        host, port: where it will listen.
        directory: where it runs and its output goes.
        environment: variables besides ours.
        greeting: what it answers once it serves; empty = it serves once it listens.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        host: str,
        port: int,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        greeting: bytes = b"",
    ) -> None:
        self._command = list(command)
        self._address = (host, port)
        self._greeting = greeting
        self._directory = directory
        self._log = directory / "broker.log"
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it and wait until it serves; returns the seconds that took.

        Raises:
            BenchError: it ended, or did not listen in time.
        """
        begun = time.monotonic()
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - what the user asked to start
                    self._command,
                    cwd=self._directory,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # A group of its own: what it starts ends with it.
                    start_new_session=True,
                )
            except OSError as error:
                raise BenchError(f"cannot start {self._command[0]}: {error.strerror}") from error
        while time.monotonic() - begun < START_TIMEOUT_S:
            code = self._process.poll()
            if code is not None:
                raise BenchError(f"{self._command[0]} ended ({code}): {self._tail()}")
            if _serves(self._address, self._greeting):
                return time.monotonic() - begun
            time.sleep(_POLL_S)
        self.stop()
        raise BenchError(f"{self._command[0]} does not listen on port {self._address[1]}")

    def stop(self, *, kill: bool = False) -> None:
        """End it: SIGTERM and wait, or SIGKILL at once; then whatever it left running."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
            # A signal is only on its way when this returns; wait until the group is empty.
            until = time.monotonic() + _GROUP_GONE_S
            while time.monotonic() < until:
                os.killpg(process.pid, 0)
                time.sleep(_POLL_S)
        self._process = None

    def restart(self, *, kill: bool = False) -> float:
        """End it and start it again; returns the seconds until it served."""
        self.stop(kill=kill)
        return self.start()

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-_LOG_LINES:])


def machine_cpu_s() -> float:
    """CPU seconds that the processes of the machine have spent since it started, on all cores.

    Without interrupts: those of a benchmark's own network traffic are nobody's.
    """
    first = (_PROC / "stat").read_text(encoding="utf-8").partition("\n")[0]
    # Guests are within user and nice.
    user, nice, system, _, _, _, _, steal = (int(field) for field in first.split()[1:9])
    return (user + nice + system + steal) / _TICKS


def free_port() -> int:
    """A TCP port of the loopback address on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _serves(address: tuple[str, int], greeting: bytes) -> bool:
    """Whether it answers: some brokers listen before they can, and close what comes."""
    try:
        with socket.create_connection(address, timeout=1) as probe:
            if not greeting:
                return True
            probe.sendall(greeting)
            return bool(probe.recv(1))
    except OSError:
        return False
