"""A broker as a process of its own, to be killed and started again.

It knows a command, a port and a log file; which broker that is, is the caller's matter.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from tests.support.bounds import HANG_S

POLL_S = 0.01
LOG_TAIL_LINES = 12


@final
class ProcessError(RuntimeError):
    """The process did not start, or ended by itself."""


def perdure_command(data: Path, port: int, *options: str) -> list[str]:
    """``perdure serve`` on a data directory and a port of the loopback address."""
    bind = f"127.0.0.1:{port}"
    serve = ["serve", "--data", str(data), "--bind", bind]
    return [sys.executable, "-m", "perdure", *serve, *options]


@final
class BrokerProcess:
    """One broker process at a time, always by the same command.

    Args:
        command: program and arguments.
        port: where it will listen.
        log: file to which its output is appended.
        on_killed: called after each ``kill``, while nothing runs: the machine may die with it.

    Attributes:
        kill_count: how often it was killed.
        listening: set from the end of ``start`` until just before ``kill`` or ``stop``.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        log: Path,
        on_killed: Callable[[], None] = lambda: None,
    ) -> None:
        self.port = port
        self.kill_count = 0
        self.listening = asyncio.Event()
        self._command = tuple(command)
        self._log = log
        self._on_killed = on_killed
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        self.check()
        assert self._process is not None
        return self._process.pid

    def place(self) -> int:
        """Where clients connect."""
        return self.port

    async def spawn(self) -> None:
        """Start the process without waiting for anything."""
        assert self._process is None or self._process.returncode is not None
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # It imports what is imported here, in whatever directory that is.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    async def start(self) -> float:
        """Start it and wait until it listens; returns the seconds that took.

        Raises:
            ProcessError: it ended, or did not listen in time.
        """
        begun = time.monotonic()
        await self.spawn()
        while time.monotonic() - begun < HANG_S:
            self.check()
            if await self._listens():
                self.listening.set()
                return time.monotonic() - begun
            await asyncio.sleep(POLL_S)
        raise ProcessError(f"nothing listens on port {self.port}:\n{self.log_tail()}")

    async def kill(self) -> None:
        """kill -9: no handler runs, nothing is flushed."""
        self.check()
        self.listening.clear()
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self.kill_count += 1
        self._on_killed()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.check()
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> int | None:
        """SIGTERM it if it runs, and kill it if that does not help; returns its exit code."""
        self.listening.clear()
        process = self._process
        if process is None:
            return None
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(HANG_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        return process.returncode

    def check(self) -> None:
        """Raise ``ProcessError`` if it does not run."""
        if self._process is None or self._process.returncode is not None:
            code = None if self._process is None else self._process.returncode
            raise ProcessError(f"the broker has ended ({code}):\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last lines of its output."""
        if not self._log.exists():
            return ""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_TAIL_LINES:])

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True
