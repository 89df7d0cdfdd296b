"""What the servers share: a temporary folder, a free port, and an end that leaves nothing behind.

A server keeps its port and its data from start to start; both are gone after ``close``.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from perdure.bench.child import ChildProcess
from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port

_PORT_ATTEMPTS: Final = 5


class Managed(ABC):
    """A context manager that starts, and closes whatever the start has left."""

    @abstractmethod
    def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds that took."""

    @abstractmethod
    def close(self) -> None:
        """End it and delete what it kept."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Server(ChildProcess, Managed):
    """One server on the loopback address, in a temporary folder; a context manager.

    Attributes:
        port: where it listens.
    """

    NAME: ClassVar[str]
    """What it is called in messages and, in lower case, in the name of its folder."""
    PORT_TAKEN: ClassVar[str]
    """What it logs when its port is not free."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"perdure-{self.NAME.lower()}-"))
        super().__init__(folder, folder / "server.log")
        self._has_run = False
        self.port = free_port()

    def start(self) -> float:
        """Start it and wait until it takes connections; returns the seconds that took.

        Raises:
            BenchError: it ended, or was not ready in time.
        """
        begun = time.monotonic()
        for attempt in range(_PORT_ATTEMPTS):
            log_start = self._log.stat().st_size if self._log.exists() else 0
            self._spawn()
            if self._wait_ready(begun):
                self._has_run = True
                return time.monotonic() - begun
            with self._log.open("rb") as log:
                log.seek(log_start)
                taken = self.PORT_TAKEN.encode() in log.read()
            # Another process may take a free port before us, but only before the first start.
            if not taken or self._has_run or attempt == _PORT_ATTEMPTS - 1:
                break
            self.port = free_port()
        tail = self._tail()
        self.stop()
        raise BenchError(f"{self.NAME} does not start on port {self.port}: {tail}")

    def close(self) -> None:
        """Stop it and delete its folder."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
