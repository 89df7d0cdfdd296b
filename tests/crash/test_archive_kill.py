"""kill -9 of an archive at random instants, while the log grows and its payloads change."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import rounds_s
from tests.support.seeds import chosen_seed
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.pipeline.archive_state import load_state
from tests.unit.pipeline.jobs.test_archive import rows

KILLS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 3)
SEED = chosen_seed()
LIFE_S = 1.5
"""A process is killed within this time of its begin; a round takes about a tenth of it."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(rounds_s(KILLS)),
    pytest.mark.filterwarnings("default"),
]


class Writer(threading.Thread):
    """A log that grows; its topics are learned and its payloads change meanwhile."""

    def __init__(self, database: RocksDatabase, random_: random.Random) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._random = random_
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self.written: list[Any] = []

    def run(self) -> None:
        """Until stopped."""
        try:
            at = START
            while not self._stopping.wait(0.1):
                at += SECOND
                sensors = [self._sensor() for _ in range(40)]
                payloads = [self._payload() for _ in sensors]
                self.written += append(self._database, sensors, at=at, payloads=payloads)
        except BaseException as error:  # noqa: BLE001 - told where it is joined
            self.failure = error

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _sensor(self) -> str:
        choose = self._random.choice
        number = self._random.randrange(3 + len(self.written) // 200)
        return choose([f"rooms/cellar/{number}", f"rooms/{number}/t", f"other/{number % 2}"])

    def _payload(self) -> bytes:
        # Fields come one after the other, and numbers get fractions.
        age = len(self.written) // 300
        value = self._random.randrange(100) + (0.5 if age > 2 else 0)
        return b'{"value": %s, "field%d": "x"}' % (str(value).encode(), min(age, 5))


def begin(database: Path, to: Path, kind: str) -> subprocess.Popen[str]:
    """An archive that has begun."""
    source = str(Path(perdure.__file__).parents[1])
    process = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("archiver.py")),
            str(database),
            str(to),
            kind,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_every_message_is_in_one_table_once(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(f"{SEED} {kind}")
    to = tmp_path / "to"
    to.mkdir()
    writer = Writer(database, choose)
    writer.start()
    for _ in range(KILLS):
        process = begin(tmp_path / "db", to, kind)
        time.sleep(choose.uniform(0, LIFE_S))
        process.kill()
        process.communicate()
    writer.stop()
    process = begin(tmp_path / "db", to, kind)
    assert process.stdout is not None
    assert process.stdout.readline() == "idle\n"
    process.kill()
    process.communicate()
    state = load_state(to)
    assert state is not None
    tables = {spec.name: rows(kind, to, spec.name) for spec in state.tables}
    offsets = sorted(row["offset"] for found in tables.values() for row in found)
    assert offsets == [message.offset for message in writer.written]
    payloads = {message.offset: message.payload for message in writer.written}
    for name, found in tables.items():
        assert all(row["payload"] == payloads[row["offset"]] for row in found), name
    cellar = tables["cellar"]
    assert all(row["topic"] == f"rooms/cellar/{row['sensor']}" for row in cellar)
    assert [row["offset"] for row in cellar] == [
        m.offset for m in writer.written if m.topic.startswith("rooms/cellar/")
    ]
    assert all(row["value"] == json.loads(row["payload"])["value"] for row in cellar)
