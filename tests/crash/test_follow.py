"""A stream follows a log whose writer is killed and started again: each message once, in order.

The writer flushes and rotates as often as it can, because that is when files come and go under
the reader. What the reader keeps between two micro-batches is what Spark would keep.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config.schema import RocksdbConfig
from perdure.limits import OFFSET_MAX
from perdure.pipeline import offsets
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb.bulk import LogFiles

pytest.importorskip("pyarrow")
from perdure.pipeline.log_source import plan, read

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("PERDURE_SEED") or 20261120)
ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS", "3"))
CONFIG = RocksdbConfig(
    write_buffer_bytes=1024 * 1024, tail_messages=0, learn_thresholds=(2,), max_open_files=64
)

WRITER = """
import os, sys, msgspec
from perdure.clock import SystemClock
from perdure.config.schema import RocksdbConfig
from perdure.model import InboxEntry, Message
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase

config = msgspec.json.decode(sys.argv[2], type=RocksdbConfig)
database = RocksDatabase.open(sys.argv[1], config=config)
now_us = SystemClock().now_us
number = 0
while True:
    batch = Batch()
    for part in range(20):
        topic = f"t/{part % 7}/{number % 5}"
        batch.append(Message(topic, b"%d" % number + bytes(500), 1))
        number += 1
    # An offset that belongs to nothing in the log.
    batch.place(InboxEntry(0, None, qos=1))
    database.submit(batch, now_us())
    # A long line: the writer gets no farther ahead of its reader than the pipe holds.
    os.write(1, b"%511d\\n" % number)
    if number % 3_000 == 0:
        database.rotate(now_us())
"""


def follow(options: ReadOptions, kept: str | None, *, rows_max: int) -> tuple[str, list[Any]]:
    """One micro-batch: what is kept after it, and its rows."""
    files = LogFiles(Path(options.path))
    try:
        if kept is None:
            start = offsets.initial(files, options)
        else:
            start = offsets.parse_position(json.loads(kept))
        end = offsets.latest(files, start, options, rows_max=rows_max, cap=OFFSET_MAX)
    finally:
        files.close()
    return json.dumps(end.to_dict()), between(options, start.offset, end.offset)


def between(options: ReadOptions, after: int, until: int) -> list[Any]:
    """The rows of a range, as tasks that start later would read them."""
    files = LogFiles(Path(options.path))
    try:
        parts = plan(files, options, Narrowing(after_offset=after, until_offset=until))
    finally:
        files.close()
    return sorted(
        row
        for part in parts
        for batch in read(part, ["offset", "topic", "payload"])
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )


def test_each_message_once_while_the_writer_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "db"
    options = ReadOptions(str(path), rows_per_partition=2_000)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    config = msgspec.json.encode(CONFIG).decode()
    kept: str | None = None
    taken: list[Any] = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", WRITER, str(path), config]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout is not None
            child.stdout.readline()
            for _ in range(chance.randrange(3, 9)):
                start = 0 if kept is None else json.loads(kept)["shards"]["0"]["offset"]
                kept, rows = follow(options, kept, rows_max=chance.choice([0, 0, 700, 5_000]))
                # A batch that failed is read again, later, and must be the same.
                for _ in range(chance.randrange(100)):
                    child.stdout.readline()
                end = json.loads(kept)["shards"]["0"]["offset"]
                assert between(options, start, end) == rows, f"seed {SEED}"
                taken += rows
            child.kill()
            child.stdout.read()
    while True:
        kept, rows = follow(options, kept, rows_max=0)
        if not rows:
            break
        taken += rows
    everything = between(options, 0, OFFSET_MAX)
    assert len(everything) > 1_000
    assert taken == everything, f"seed {SEED}"
