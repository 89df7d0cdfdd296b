"""What a failing disk leaves of a write; what reads and writes do is in tests/contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import (
    StorageFull,
    StorageUnavailable,
)
from perdure.model import Cursor
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import FIXED_TABLES, Engine
from tests.contract.values import NOW_US, append_all, create_session, message, read_all
from tests.contract.values import record as session_record
from tests.unit.storage.rocksdb.faults import Disk

NO_TAIL = RocksdbConfig(tail_messages=0)


async def test_failed_write_leaves_nothing_and_blocks_later_ones(
    database: RocksDatabase, disk: Disk
) -> None:
    create_session(database)
    append_all(database, message("kept"))
    disk.write_error = StorageFull("no space")
    batch = Batch()
    batch.append(message("lost"))
    batch.put_session(session_record("c2"))
    batch.put_cursor("c1", Cursor(5), epoch=1)
    batch.put_retained(message("r", offset=7))
    with pytest.raises(StorageFull):
        database.submit(batch, NOW_US)
    disk.write_error = None
    with pytest.raises(StorageFull):
        append_all(database, message("later"))
    with pytest.raises(StorageFull):
        database.sync()
    assert [m.topic for m in await read_all(database, "#")] == ["kept"]
    assert database.retained_count == 0
    assert await database.session_count() == 1
    assert database.generations()[0].message_count == 1
    stored = await database.open_session("c1")
    assert stored is not None
    assert stored.cursor == Cursor()


async def test_open_batch_is_written_after_recovery(database: RocksDatabase, disk: Disk) -> None:
    """What had been learned for its messages was never written: it is learned again."""
    create_session(database)
    append_all(database, message("known"))
    begun = Batch()
    begun.append(message("new/1"))
    begun.put_cursor("c1", Cursor(3), epoch=1)
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message("other/1"))
    disk.write_error = None
    assert await database.recover()
    append_all(database, message("third/1"))
    begun.append(message("new/2"))
    database.submit(begun, NOW_US)
    topics = sorted(m.topic for m in await read_all(database, "#"))
    assert topics == ["known", "new/1", "new/2", "third/1"]
    assert list(database.check()) == []
    stored = await database.open_session("c1")
    assert stored is not None
    assert stored.cursor == Cursor(3)


async def test_nodes_of_a_failed_batch_are_written_with_the_next(
    database: RocksDatabase, disk: Disk, path: Path
) -> None:
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message("a/b/c"))
    disk.write_error = None
    assert await database.recover()
    append_all(database, message("a/b/c"))
    database.close()
    reader = RocksDatabase.open(path, config=NO_TAIL, read_only=True)
    assert [m.topic for m in await read_all(reader, "a/+/c")] == ["a/b/c"]
    reader.close()


async def test_rotation_on_a_failing_disk(database: RocksDatabase, disk: Disk) -> None:
    append_all(database, message("a/1"))
    disk.write_error = StorageFull("no space")
    with pytest.raises(StorageFull):
        database.rotate(NOW_US + 1)
    disk.write_error = None
    assert await database.recover()
    assert len(database.generations()) == 1
    append_all(database, message("a/2"))
    database.rotate(NOW_US + 2)
    append_all(database, message("a/3"))
    assert [m.topic for m in await read_all(database, "#")] == ["a/1", "a/2", "a/3"]
    assert list(database.check()) == []


async def test_tables_that_cannot_be_made_or_dropped(database: RocksDatabase, disk: Disk) -> None:
    append_all(database, message("a/1"))
    disk.table_error = StorageFull("no space")
    with pytest.raises(StorageFull):
        database.rotate(NOW_US + 1)
    disk.table_error = None
    assert await database.recover()
    database.rotate(NOW_US + 2)
    append_all(database, message("a/2"))
    disk.table_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        database.drop_generation(1)
    disk.table_error = None
    assert await database.recover()
    assert [info.generation for info in database.generations()] == [2]
    assert [m.topic for m in await read_all(database, "#")] == ["a/2"]
    assert list(database.check()) == []


def test_rotation_lets_the_write_ahead_log_go(path: Path) -> None:
    """A log is kept until every table has flushed what is in it, the small ones too."""
    flushed: set[str] = set()

    class Recording(Engine):
        def flush_table(self, name: str) -> None:
            flushed.add(name)
            super().flush_table(name)

    database = RocksDatabase.open(path, now_us=NOW_US, engine=Recording)
    append_all(database, message("a"))
    database.rotate(NOW_US + 1)
    generation = {name for name in database.tables()[0].tables if name not in FIXED_TABLES}
    assert flushed >= set(FIXED_TABLES)
    assert flushed & generation
    database.close()


async def test_session_iteration_goes_on_over_a_recovery(
    database: RocksDatabase, disk: Disk
) -> None:
    batch = Batch()
    for number in range(600):
        batch.put_session(session_record(f"c{number:03}"))
    database.submit(batch, NOW_US)
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message())
    disk.write_error = None
    listed: list[str] = []
    async for found in database.sessions():
        listed.append(found.client_id)
        if len(listed) == 10:
            assert await database.recover()
    assert len(listed) == 600


def test_stale_batch_does_not_fail_the_database(database: RocksDatabase) -> None:
    create_session(database, epoch=1)
    stale = Batch()
    stale.put_cursor("c1", Cursor(1), epoch=1)
    create_session(database, epoch=2)
    database.submit(stale, NOW_US)
    assert stale.refused == stale.operations
    append_all(database, message())
