"""Whose a directory is: locking, formats, and reading beside the writer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import (
    FormatTooNew,
    StorageCorrupt,
    StorageLocked,
    StorageUnavailable,
    UsageError,
)
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase, keys
from perdure.storage.rocksdb.engine import META, Engine
from perdure.storage.rocksdb.skipping import SkippingEngine
from tests.contract.values import NOW_US, append_all, message, read_all

NO_TAIL = RocksdbConfig(tail_messages=0)


def test_second_open_is_refused_with_the_owner(path: Path) -> None:
    database = RocksDatabase.open(path, now_us=NOW_US)
    with pytest.raises(StorageLocked) as raised:
        RocksDatabase.open(path)
    assert str(path) in raised.value.message
    assert f"process {os.getpid()}" in raised.value.message
    database.close()
    RocksDatabase.open(path).close()


def test_open_in_another_process_is_refused(path: Path) -> None:
    database = RocksDatabase.open(path, now_us=NOW_US)
    script = (
        "import sys\n"
        "from perdure.errors import StorageLocked\n"
        "from perdure.storage.rocksdb import RocksDatabase\n"
        "try:\n    RocksDatabase.open(sys.argv[1])\n"
        "except StorageLocked as error:\n    print(error.message)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert f"process {os.getpid()}" in found.stdout
    database.close()


async def test_read_only_sees_what_is_there_beside_the_writer(path: Path) -> None:
    writer = RocksDatabase.open(path, now_us=NOW_US)
    append_all(writer, message("a/1"), message("b"))
    reader = RocksDatabase.open(path, config=NO_TAIL, read_only=True)
    assert [m.topic for m in await read_all(reader, "#")] == ["a/1", "b"]
    append_all(writer, message("a/2"))
    assert len(await read_all(reader, "#")) == 2
    assert reader.generations()[0].message_count == 2
    for refused in (reader.sync, lambda: reader.submit(Batch(), 0)):
        with pytest.raises(UsageError):
            refused()
    assert list(reader.check()) == []
    reader.close()
    writer.close()
    reader = RocksDatabase.open(path, read_only=True)
    assert len(await read_all(reader, "#")) == 3
    reader.close()


def test_a_view_that_lacks_what_was_synced_is_not_used(path: Path) -> None:
    """RocksDB left out, without a word, all that came after the damage: whoever counted, counted
    too little."""
    writer = RocksDatabase.open(path, now_us=NOW_US)
    for number in range(20):
        append_all(writer, message(f"a/{number}", b"x" * 2000))
        writer.sync()
    (log,) = path.glob("*.log")
    whole = log.read_bytes()
    where = whole.index(b"x" * 100, len(whole) // 2)
    log.write_bytes(whole[:where] + b"y" + whole[where + 1 :])
    with pytest.raises(StorageCorrupt, match="writes that were synced cannot be read") as raised:
        RocksDatabase.open(path, config=NO_TAIL, read_only=True)
    assert "storage check" in raised.value.hint
    # Who looks for damage sees what there is.
    RocksDatabase.open(path, config=NO_TAIL, read_only=True, engine=SkippingEngine).close()
    # The end of the last sync is what a power cut takes.
    log.write_bytes(whole[:-1])
    RocksDatabase.open(path, config=NO_TAIL, read_only=True).close()
    log.write_bytes(whole)
    RocksDatabase.open(path, config=NO_TAIL, read_only=True).close()
    writer.close()


async def test_a_view_with_holes_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is flushed while a reader opens may be in none of the files that it has read."""
    database = RocksDatabase.open(path, config=NO_TAIL, now_us=NOW_US)
    append_all(database, message("a"), message("b"))
    opened: list[Engine] = []

    def engine(*args: object, **options: object) -> Engine:
        made = Engine(*args, **options)  # type: ignore[arg-type]
        opened.append(made)
        if len(opened) == 1:
            database.rotate(NOW_US + 1)
        return made

    reader = RocksDatabase.open(path, config=NO_TAIL, read_only=True, engine=engine)
    assert len(opened) > 1
    assert [info.generation for info in reader.generations()] == [1, 2]
    assert len(await read_all(reader, "#")) == 2
    reader.close()

    monkeypatch.setattr("perdure.storage.rocksdb.opening._OPEN_ATTEMPTS", 5)

    def failing(*args: object, **options: object) -> Engine:
        database.rotate(NOW_US + 2)
        raise StorageUnavailable("a file has gone")

    with pytest.raises(StorageUnavailable, match="changes too fast"):
        RocksDatabase.open(path, config=NO_TAIL, read_only=True, engine=failing)
    database.close()


def test_read_only_needs_a_database(path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        RocksDatabase.open(path, read_only=True)
    assert not path.exists()


def test_a_file_in_the_place_of_the_directory(path: Path) -> None:
    path.write_text("not a directory")
    with pytest.raises(StorageUnavailable):
        RocksDatabase.open(path)


def test_foreign_database_is_not_touched(path: Path) -> None:
    engine = Engine(path, RocksdbConfig())
    engine.write([META, b"someone", b"else"])
    engine.close()
    with pytest.raises(StorageCorrupt):
        RocksDatabase.open(path)
    engine = Engine(path, RocksdbConfig())
    assert engine.get(META, b"someone") == b"else"
    engine.close()


@pytest.mark.parametrize("value", [b"\x02\x93", b"\x01\x93\x03\xa1x\x00"])
def test_later_format_is_refused_and_the_lock_released(path: Path, value: bytes) -> None:
    RocksDatabase.open(path, now_us=NOW_US).close()
    engine = Engine(path, RocksdbConfig())
    engine.write([META, keys.FORMAT, value])
    engine.close()
    for _ in range(2):
        with pytest.raises(FormatTooNew):
            RocksDatabase.open(path)


def test_identity_and_creation_time_stay(path: Path) -> None:
    database = RocksDatabase.open(path, now_us=NOW_US)
    created = database.format
    assert created.created_at_us == NOW_US
    assert database.generations()[0].created_at_us == NOW_US
    database.close()
    database = RocksDatabase.open(path, now_us=NOW_US + 1)
    assert database.format == created
    database.close()
    with pytest.raises(StorageUnavailable):
        database.submit(Batch(), 0)
