"""kill -9 of a query's driver and of the broker, at random, at 5,000 messages a second."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError
from tests.spark.broker import Broker, Publisher
from tests.support.bounds import HANG_S, rounds_s
from tests.support.seeds import chosen_seed

pytest.importorskip("pyspark")
pytest.importorskip("uvicorn")
import pyarrow.parquet as pq

from perdure.pipeline import history, log_index, session
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.options import parse_options

PROGRAM = Path(__file__).parent / "programs" / "stream.py"
SEED = chosen_seed()
ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 2)
BURST, PAUSE_S = 250, 0.05
"""5,000 a second, as long as the broker runs and the machine keeps up."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(rounds_s(ROUNDS)),
    pytest.mark.filterwarnings("default"),
]

COLUMNS = ("offset", "topic", "payload")


class Driver:
    """The process of a streaming query and its Java machine.

    Args:
        home: directory of its sink and its checkpoint.
        options: of the source.
    """

    def __init__(self, home: Path, options: dict[str, str]) -> None:
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
        return f"seed {SEED}: {(self._home / 'driver.log').read_text()[-4_000:]}"


def whole_log(data: Path) -> dict[int, tuple[str, bytes]]:
    """Every message of a directory by its offset, read without Spark."""
    options = parse_options({"path": str(data)}, 0)
    with log_index.opened(options) as index:
        parts = history.plan(index, options, Narrowing())
    rows = [
        row for part in parts for batch in history.read(part, COLUMNS) for row in batch.to_pylist()
    ]
    return {row["offset"]: (row["topic"], row["payload"]) for row in rows}


@pytest.fixture
def _java() -> None:
    try:
        session.check_java()
    except ConfigError as error:
        pytest.skip(error.message)


@pytest.mark.usefixtures("_java")
@pytest.mark.parametrize("source", ["path", "url"])
def test_each_message_is_in_the_sink_once_and_in_order(source: str, tmp_path: Path) -> None:
    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(f"{SEED} {source}")
    with Broker(tmp_path, hides=False) as broker:
        options = {"path": str(broker.data)}
        if source == "url":
            options = {"url": broker.url, "tokenFile": str(broker.token_file)}
        home = tmp_path / "query"
        home.mkdir()
        driver = Driver(home, options)
        publisher = Publisher(broker.port, burst=BURST, pause_s=PAUSE_S)
        publisher.start()
        driver.start()
        rounds = ROUNDS if source == "path" else -(-ROUNDS // 2)
        for _ in range(rounds):
            driver.wait_for_more()
            time.sleep(choose.uniform(0, 1))
            for victim in choose.sample(["driver", "broker"], 2):
                # The other one dies while this one works, or while it starts.
                time.sleep(choose.choice([0, choose.uniform(0, 6)]))
                if victim == "driver":
                    driver.kill()
                    driver.start()
                else:
                    broker.kill()
                    broker.start()
        publisher.stop()
        wanted = whole_log(broker.data)
        driver.wait_for(max(wanted))
        driver.kill()
    batches = driver.batches()
    # Batches follow each other in the order of the log, so the order of each stream is kept.
    found = [offset for rows in batches for offset in sorted(row["offset"] for row in rows)]
    assert found == sorted(wanted), f"seed {SEED}"
    for rows in batches:
        assert all(wanted[row["offset"]] == (row["topic"], row["payload"]) for row in rows)
    numbers = {int(payload[10:-1]) for _, payload in wanted.values()}
    assert publisher.acknowledged <= numbers, f"seed {SEED}"
    assert len(publisher.acknowledged) > 5_000
    # Each round waits for one, and so does the end.
    assert len(batches) > rounds
