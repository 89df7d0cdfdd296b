"""kill -9 of a real process that writes, at chosen moments; then everything is counted.

A write that returned survives the death of the process, synced or not; a write that did not
return is there as a whole or not at all.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase

SEED = int(os.environ.get("PERDURE_TEST_SEED", "20250807"))
ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS", "4"))
CONFIG = RocksdbConfig(
    write_buffer_bytes=1024 * 1024, tail_messages=0, learn_thresholds=(2,), max_open_files=64
)

WRITER = """
import os, sys, msgspec
from perdure.model import Cursor, InboxEntry, Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase
from perdure.config.schema import RocksdbConfig

config = msgspec.json.decode(sys.argv[3], type=RocksdbConfig)
database = RocksDatabase.open(sys.argv[1], config=config)
number = int(sys.argv[2])
record = SessionRecord("c", number, 0, 0, True, 0, expires_at_us=number)
batch = Batch()
batch.put_session(record)
database.submit(batch, 0)
while True:
    number += 1
    batch = Batch()
    payload = b"%d" % number
    # Three messages, a retained one, an inbox entry and a cursor: all of them or none.
    for part in range(3):
        batch.append(Message(f"t/{number % 40}/{part}", payload + bytes(300), 1))
    retained = Message("r", payload)
    batch.place(retained)
    batch.put_retained(retained)
    epoch = record.epoch
    entry = InboxEntry(0, None, qos=1, identifiers=(number,))
    batch.place(entry)
    batch.put_inbox("c", entry, epoch=epoch)
    last = database.last_offset
    batch.trim_inbox("c", last - 30, epoch=epoch)
    batch.put_cursor("c", Cursor(last, number), epoch=epoch)
    database.submit(batch, 0)
    os.write(1, b"w%d\\n" % number)
    if number % 50 == 0:
        database.sync()
    if number % 333 == 0:
        database.rotate(number)
    if number % 999 == 0:
        database.drop_generation(database.generations()[0].generation)
"""


def run_until_killed(path: Path, number: int, writes: int) -> int:
    """Write until so many writes were reported, kill, and return the last one reported."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    config = msgspec.json.encode(CONFIG).decode()
    command = [sys.executable, "-c", WRITER, str(path), str(number), config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        last = number
        for _ in range(writes):
            line = child.stdout.readline()
            assert line.startswith(b"w"), line
            last = int(line[1:])
        child.send_signal(signal.SIGKILL)
        for line in child.stdout.read().split(b"\n"):
            if line:
                last = int(line[1:])
        assert child.wait() == -signal.SIGKILL
    return last


@pytest.mark.slow
async def test_kill_at_any_write_loses_nothing(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    path = tmp_path / "data"
    number = 0
    for _ in range(ROUNDS):
        last = run_until_killed(path, number, chance.randrange(20, 1_500))
        database = RocksDatabase.open(path, config=CONFIG)
        number = await check_everything(database, last)
        database.close()


async def check_everything(database: RocksDatabase, last: int) -> int:
    """Nothing reported is missing, nothing is half there; returns the last write found."""
    assert list(database.check()) == []
    result = await database.read(
        ["#"], after_offset=0, until_offset=database.last_offset, limit=10**6
    )
    found = [int(message.payload.rstrip(b"\0")) for message in result.messages]
    newest = found[-1]
    # The one that was being written when the process died may be there too.
    assert newest in (last, last + 1)
    assert found == [number for number in range(found[0], newest + 1) for _ in range(3)]
    retained = await database.get_retained("r")
    assert retained is not None
    assert int(retained.payload) == newest
    stored = await database.open_session("c")
    assert stored is not None
    assert stored.cursor.serial == newest
    assert retained.offset == result.messages[-1].offset + 1
    inbox = await database.read_inbox(
        "c", after_offset=0, until_offset=database.last_offset, limit=100
    )
    assert inbox[-1].identifiers == (newest,)
    assert inbox[-1].offset == retained.offset + 1
    assert stored.cursor.offset == inbox[-2].offset
    assert [entry.identifiers[0] for entry in inbox] == list(
        range(inbox[0].identifiers[0], newest + 1)
    )
    return newest
