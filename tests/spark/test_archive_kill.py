"""kill -9 of ``perdure pipeline archive`` with its Java machine, while the log grows."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.model import Message
from tests.support.bounds import rounds_s
from tests.support.seeds import chosen_seed
from tests.unit.pipeline.logs import SECOND, START, append, open_log

KILLS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 1)
SEED = chosen_seed()
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(rounds_s(KILLS)),
    pytest.mark.filterwarnings("default"),
]
TOPICS = [f"rooms/{number}/t" for number in range(9)] + ["x"]


def test_each_message_is_archived_once(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from perdure.pipeline.jobs.archive import Archive, Wanted
    from perdure.pipeline.lake.catalogs import local_catalog
    from perdure.pipeline.lake.lake import NAMESPACE
    from perdure.pipeline.options import ReadOptions
    from perdure.pipeline.sinks.iceberg import IcebergSink
    from perdure.pipeline.spark_jobs import SparkExecute

    print(f"\nrepeat with PERDURE_SEED={SEED}")
    choose = random.Random(SEED)
    data, to = tmp_path / "db", tmp_path / "to"
    database = open_log(data)
    written: list[Message] = []
    stopping = threading.Event()

    def write() -> None:
        at = START
        while not stopping.wait(0.2):
            at += SECOND
            payloads = [b'{"v": %d}' % number for number in range(len(TOPICS))]
            written.extend(append(database, TOPICS, at=at, payloads=payloads))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for _ in range(KILLS):
        _archive_and_kill(data, to, choose.uniform(0, 2))
    stopping.set()
    writer.join()
    to.mkdir(exist_ok=True)
    sink = IcebergSink(local_catalog(to), database.format.database_id)
    job = Archive(ReadOptions(str(data)), sink, Wanted(), directory=to, execute=SparkExecute(spark))
    while not job.run_round().is_last:
        pass
    database.close()
    found = {
        name: local_catalog(to).load_table((NAMESPACE, name)).scan().to_arrow().to_pylist()
        for _, name in local_catalog(to).list_tables(NAMESPACE)
    }
    assert set(found) == {"messages", "rooms_t"}
    offsets = sorted(row["offset"] for table in found.values() for row in table)
    assert offsets == [message.offset for message in written]
    assert all(row["v"] == int(row["level_2"]) for row in found["rooms_t"])


def _archive_and_kill(data: Path, to: Path, life_s: float) -> None:
    """Archive until some time after the first round that did something."""
    command = [sys.executable, "-m", "perdure", "pipeline", "archive", "--data", str(data)]
    command += ["--to", str(to), "--every", "10ms", "--memory", "600m", "--master", "local[1]"]
    source = str(Path(perdure.__file__).parents[1])
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        start_new_session=True,
    )
    assert process.stderr is not None
    assert any(line.startswith("archived") for line in process.stderr)
    time.sleep(life_s)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
