"""A program that we start, wait for, and end: what brokers and servers of ours have in common.

One process at a time, always by the same rules: its output goes to a log, it has a session of its
own, and it is ready when its own test says so. What it is called with, and what that test is, is
the subclass's matter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, TypedDict

from perdure.bench.errors import BenchError

POLL_S: Final = 0.005
STOP_TIMEOUT_S: Final = 30.0
_LOG_LINES: Final = 10


class Identity(TypedDict, total=False):
    """Whose process it is, as ``subprocess.Popen`` takes it; empty = ours."""

    user: int
    group: int
    extra_groups: list[int]


def _from_here(variables: Mapping[str, str] | None) -> dict[str, str]:
    """Variables for a program that runs elsewhere: Python finds the modules that it finds here."""
    found = dict(os.environ if variables is None else variables)
    if path := found.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    return found


class ChildProcess(ABC):
    """One program; a subclass says which.

    Args:
        directory: where it runs.
        log: file to which its output is appended.
    """

    START_TIMEOUT_S: ClassVar[float] = 240.0
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    """What asks it to end in order."""

    def __init__(self, directory: Path, log: Path) -> None:
        self._directory = directory
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds that took.

        Raises:
            BenchError: it ended, or was not ready in time.
        """

    def kill(self) -> None:
        """kill -9."""
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        self._ended()

    def stop(self) -> None:
        """End it in order, and kill it if that does not help."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(self.STOP_SIGNAL)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                return
        self._ended()

    def restart(self, *, kill: bool = False) -> float:
        """End it and start it again on the same port; returns the seconds that the start took."""
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Program and arguments."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it answers; asked again and again while it starts."""

    def _environment(self) -> Mapping[str, str] | None:
        """Its variables; None = ours."""
        return None

    def _identity(self) -> Identity:
        return {}

    def _ended(self) -> None:
        """Forget the process, which has been waited for."""
        self._process = None

    def _spawn(self) -> None:
        command = self._command()
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - named by the user or found by us
                    command,
                    cwd=self._directory,
                    env=_from_here(self._environment()),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # A terminal's Ctrl-C is for the tool, which then stops its children in order;
                    # and what it starts is of its group and can be ended with it.
                    start_new_session=True,
                    **self._identity(),
                )
            except OSError as error:
                raise BenchError(f"cannot start {command[0]}: {error.strerror}") from error

    def _wait_ready(self, begun: float) -> bool:
        """Wait until it is ready; False = it ended, or its time is up."""
        assert self._process is not None
        while time.monotonic() - begun < self.START_TIMEOUT_S:
            if self._process.poll() is not None:
                return False
            if self._is_ready():
                return True
            time.sleep(POLL_S)
        return False

    def _tail(self) -> str:
        """The last lines of its output."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-_LOG_LINES:])


def wait_until(condition: Callable[[], bool], *, timeout_s: float, complaint: str) -> None:
    """Ask a condition again and again until it holds.

    Raises:
        BenchError: with the complaint: it does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(complaint)
        time.sleep(POLL_S)
