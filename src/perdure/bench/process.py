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
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, final

from perdure.bench import proc
from perdure.bench.child import POLL_S, ChildProcess
from perdure.bench.errors import BenchError

_GROUP_GONE_S: Final = 5.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
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
        if not (proc.PROC / str(pid)).is_dir():
            raise BenchError(f"no process {pid}")

    def cpu_s(self) -> float:
        """CPU seconds, user and system, since it started."""
        ticks = 0
        for pid in proc.family(self.pid):
            # utime, stime, cutime, cstime are 14..17, and the first of these is the third.
            ticks += sum(int(field) for field in proc.stat_fields(pid)[11:15])
        return ticks / _TICKS

    def memory_bytes(self) -> tuple[int, int]:
        """(resident now, peak since it started)."""
        now = peak = 0
        for pid in proc.family(self.pid):
            try:
                status = (proc.PROC / str(pid) / "status").read_text(encoding="utf-8")
            except OSError:
                continue
            values = {name: int(kib) * 1024 for name, kib in _KIB_LINE.findall(status)}
            now += values.get("VmRSS", 0)
            peak += values.get("VmHWM", 0)
        return now, peak


@final
class BrokerProcess(ChildProcess):
    """A broker that the tool starts, and ends.

    Args:
        command: program and arguments.
        host, port: where it will listen.
        directory: where it runs and its output goes.
        environment: variables besides ours.
        greeting: what it answers once it serves; empty = it serves once it listens.
    """

    START_TIMEOUT_S: ClassVar[float] = 120.0

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
        super().__init__(directory, directory / "broker.log")
        self._arguments = list(command)
        self._address = (host, port)
        self._greeting = greeting
        self._variables = {**os.environ, **(environment or {})}

    def start(self) -> float:
        """Start it and wait until it serves; returns the seconds that took.

        Raises:
            BenchError: it ended, or did not listen in time.
        """
        begun = time.monotonic()
        self._spawn()
        if self._wait_ready(begun):
            return time.monotonic() - begun
        assert self._process is not None
        program, code = self._arguments[0], self._process.poll()
        if code is not None:
            raise BenchError(f"{program} ended ({code}): {self._tail()}")
        self.stop()
        raise BenchError(f"{program} does not listen on port {self._address[1]}")

    def _command(self) -> Sequence[str]:
        return self._arguments

    def _environment(self) -> Mapping[str, str]:
        return self._variables

    def _is_ready(self) -> bool:
        """Whether it answers: some brokers listen before they can, and close what comes."""
        try:
            with socket.create_connection(self._address, timeout=1) as probe:
                if not self._greeting:
                    return True
                probe.sendall(self._greeting)
                return bool(probe.recv(1))
        except OSError:
            return False

    def _ended(self) -> None:
        """End whatever it left running."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
            # A signal is only on its way when this returns; wait until the group is empty.
            until = time.monotonic() + _GROUP_GONE_S
            while time.monotonic() < until:
                os.killpg(self.pid, 0)
                time.sleep(POLL_S)
        super()._ended()


def machine_cpu_s() -> float:
    """CPU seconds that the processes of the machine have spent since it started, on all cores.

    Without interrupts: those of a benchmark's own network traffic are nobody's.
    """
    first = (proc.PROC / "stat").read_text(encoding="utf-8").partition("\n")[0]
    # Guests are within user and nice.
    user, nice, system, _, _, _, _, steal = (int(field) for field in first.split()[1:9])
    return (user + nice + system + steal) / _TICKS
