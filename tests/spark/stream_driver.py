"""The process of a streaming query, to be killed, and what a log has for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from perdure.pipeline import history, log_index
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.options import parse_options
from tests.support.bounds import HANG_S

PROGRAM = Path(__file__).parent / "programs" / "stream.py"
COLUMNS = ("offset", "topic", "payload")


class Driver:
    """The process of a streaming query and its Java machine.

    Args:
        home: directory of its sink and its checkpoint.
        options: of the source.
        seed: of the run, for whoever reads of a failure.
    """

    def __init__(self, home: Path, options: dict[str, str], *, seed: str) -> None:
        self._seed = seed
        self._home = home
        self._command = [sys.executable, str(PROGRAM), json.dumps(options), str(home)]
        self._process: subprocess.Popen[bytes] | None = None
        (home / "sink").mkdir()

    def start(self) -> None:
        """Begin, or go on."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with (self._home / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9, of Java too: no task ends, nothing is committed."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_for_more(self) -> None:
        """Wait until a micro-batch comes; a driver takes its time to begin."""
        before = len(self.files())
        self._wait(lambda: len(self.files()) > before)

    def wait_for(self, offset: int) -> None:
        """Wait until a message is in the sink."""
        self._wait(lambda: any(row["offset"] == offset for row in self.batches()[-1]))

    def _wait(self, is_there: Callable[[], bool]) -> None:
        assert self._process is not None
        deadline = time.monotonic() + HANG_S
        while not is_there():
            assert self._process.poll() is None, self._told()
            assert time.monotonic() < deadline, self._told()
            time.sleep(0.02)

    def files(self) -> list[Path]:
        """What it wrote, in the order of the micro-batches."""
        return sorted((self._home / "sink").glob("*.parquet"))

    def batches(self) -> list[list[dict[str, Any]]]:
        """The rows of each micro-batch."""
        return [pq.read_table(file, partitioning=None).to_pylist() for file in self.files()]

    def _told(self) -> str:
        return f"seed {self._seed}: {(self._home / 'driver.log').read_text()[-4_000:]}"


def whole_log(data: Path) -> dict[int, tuple[str, bytes]]:
    """Every message of a directory by its offset, read without Spark."""
    options = parse_options({"path": str(data)}, 0)
    with log_index.opened(options) as index:
        parts = history.plan(index, options, Narrowing())
    rows = [
        row for part in parts for batch in history.read(part, COLUMNS) for row in batch.to_pylist()
    ]
    return {row["offset"]: (row["topic"], row["payload"]) for row in rows}
