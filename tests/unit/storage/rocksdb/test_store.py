"""Opening, locking, failing and recovering; what reads and writes do is in tests/contract."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.values import NOW_US, append_all, create_session, entry, message, read_all
from tests.contract.values import record as session_record
from tests.unit.storage.rocksdb.faults import Disk

from perdure.config.schema import RocksdbConfig
from perdure.errors import (
    Fenced,
    FormatTooNew,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageUnavailable,
    UsageError,
)
from perdure.model import Cursor
from perdure.storage.rocksdb import RocksDatabase, keys
from perdure.storage.rocksdb.engine import FIXED_TABLES, META, Engine

NO_TAIL = RocksdbConfig(tail_messages=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


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
    for refused in (reader.sync, lambda: reader.write(reader.batch())):
        with pytest.raises(UsageError):
            refused()
    assert list(reader.check()) == []
    reader.close()
    writer.close()
    reader = RocksDatabase.open(path, read_only=True)
    assert len(await read_all(reader, "#")) == 3
    reader.close()


async def test_a_view_with_holes_is_not_used(path: Path) -> None:
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


@pytest.mark.parametrize("value", [b"\x02\x93", b"\x01\x93\x02\xa1x\x00"])
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
        database.write(database.batch())


# -- failing disks -----------------------------------------------------------------------------


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def database(path: Path, disk: Disk) -> Iterator[RocksDatabase]:
    database = RocksDatabase.open(path, now_us=NOW_US, engine=disk.engine)
    yield database
    database.close()


async def test_failed_write_leaves_nothing_and_blocks_later_ones(
    database: RocksDatabase, disk: Disk
) -> None:
    create_session(database)
    append_all(database, message("kept"))
    disk.write_error = StorageFull("no space")
    batch = database.batch()
    batch.append(message("lost"), NOW_US)
    batch.put_session(session_record("c2"))
    batch.put_cursor("c1", Cursor(5), epoch=1)
    batch.put_retained(message("r", offset=7))
    with pytest.raises(StorageFull):
        database.write(batch)
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


async def test_recover_waits_for_the_disk(database: RocksDatabase, disk: Disk) -> None:
    append_all(database, message("a/1"))
    disk.write_error = disk.open_error = StorageFull("no space")
    with pytest.raises(StorageFull):
        append_all(database, message("a/2"))
    assert not await database.recover()
    with pytest.raises(StorageError):
        append_all(database, message("a/2"))
    disk.open_error = None
    assert not await database.recover()
    disk.write_error = None
    assert await database.recover()
    append_all(database, message("a/3"))
    database.sync()
    assert [m.topic for m in await read_all(database, "#")] == ["a/1", "a/3"]
    assert list(database.check()) == []
    assert await database.recover()


async def test_open_batch_is_written_after_recovery(database: RocksDatabase, disk: Disk) -> None:
    """What had been learned for its messages was never written: it is learned again."""
    create_session(database)
    append_all(database, message("known"))
    begun = database.batch()
    begun.append(message("new/1"), NOW_US)
    begun.put_cursor("c1", Cursor(3), epoch=1)
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message("other/1"))
    disk.write_error = None
    assert await database.recover()
    append_all(database, message("third/1"))
    begun.append(message("new/2"), NOW_US)
    database.write(begun)
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


async def test_failed_sync_blocks_until_recovered(database: RocksDatabase, disk: Disk) -> None:
    append_all(database, message("a/1"))
    disk.sync_error = StorageUnavailable("fdatasync: I/O error")
    with pytest.raises(StorageUnavailable):
        await asyncio.to_thread(database.sync)
    disk.sync_error = None
    with pytest.raises(StorageUnavailable):
        append_all(database, message("a/2"))
    assert await database.recover()
    assert disk.opened == 2
    assert [m.topic for m in await read_all(database, "#")] == ["a/1"]
    append_all(database, message("a/2"))


async def test_recovery_that_finds_synced_data_missing_is_corruption(
    database: RocksDatabase, disk: Disk, path: Path
) -> None:
    database.sync()
    aside = path.with_name("aside")
    shutil.copytree(path, aside)
    append_all(database, message("a/1"))
    database.sync()

    def swap(path: Path) -> None:
        for file in path.iterdir():
            if file.name != "perdure.lock":
                file.unlink()
        shutil.copytree(aside, path, dirs_exist_ok=True)

    disk.on_reopen = swap
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message("a/2"))
    disk.write_error = None
    with pytest.raises(StorageCorrupt):
        await database.recover()
    with pytest.raises(StorageError):
        append_all(database, message("a/3"))


async def test_recovery_that_lost_unsynced_data_goes_on(
    database: RocksDatabase, disk: Disk, path: Path
) -> None:
    """A power cut of the disk: what was written and not synced was never acknowledged."""
    create_session(database)
    append_all(database, message("synced"))
    database.sync()
    aside = path.with_name("aside")
    shutil.copytree(path, aside)
    append_all(database, message("unsynced/1"))
    last = database.last_offset

    def swap(path: Path) -> None:
        for file in path.iterdir():
            if file.name != "perdure.lock":
                file.unlink()
        shutil.copytree(aside, path, dirs_exist_ok=True)

    disk.on_reopen = swap
    disk.sync_error = StorageUnavailable("fdatasync: I/O error")
    with pytest.raises(StorageUnavailable):
        database.sync()
    disk.sync_error = disk.on_reopen = None
    disk.on_reopen = swap
    assert await database.recover()
    assert [m.topic for m in await read_all(database, "#")] == ["synced"]
    assert append_all(database, message("unsynced/2")) == [last + 1]
    assert list(database.check()) == []


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
    generation = {name for name in database._use().tables if name not in FIXED_TABLES}
    assert flushed >= set(FIXED_TABLES)
    assert flushed & generation
    database.close()


async def test_a_database_that_comes_back_half_is_not_read(
    database: RocksDatabase, disk: Disk
) -> None:
    """Half of the generations would be half of the truth."""
    append_all(database, message("a"))
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message("b"))
    disk.write_error = None
    disk.scan_error = StorageUnavailable("I/O error")
    assert not await database.recover()
    disk.scan_error = None
    with pytest.raises(StorageUnavailable, match="not open"):
        await database.get_retained("r")
    assert database.has_failed
    assert await database.recover()
    assert not database.has_failed
    assert [m.topic for m in await read_all(database, "#")] == ["a"]


async def test_a_closed_database(path: Path) -> None:
    database = RocksDatabase.open(path, now_us=NOW_US)
    database.close()
    database.close()
    assert not await database.recover()
    with pytest.raises(StorageUnavailable):
        await database.get_retained("t")


async def test_recovery_does_not_wait_for_a_sync_that_hangs(
    database: RocksDatabase, disk: Disk
) -> None:
    disk.write_error = StorageUnavailable("I/O error")
    with pytest.raises(StorageUnavailable):
        append_all(database, message())
    disk.write_error = None
    with database._engine_lock:
        assert not await database.recover()
    assert await database.recover()


async def test_session_iteration_goes_on_over_a_recovery(
    database: RocksDatabase, disk: Disk
) -> None:
    batch = database.batch()
    for number in range(600):
        batch.put_session(session_record(f"c{number:03}"))
    database.write(batch)
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
    stale = database.batch()
    stale.put_cursor("c1", Cursor(1), epoch=1)
    create_session(database, epoch=2)
    with pytest.raises(Fenced):
        database.write(stale)
    append_all(database, message())


async def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """On a small file system of its own: nothing acknowledged is lost, and writing goes on."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("needs root to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)], check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        await fill_and_recover(small)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def write_until_full(database: RocksDatabase, acknowledged: list[int]) -> None:
    for number in range(10_000):
        batch = database.batch()
        offset = batch.append(message(f"t/{number % 50}", os.urandom(1_000)), 0)
        batch.put_inbox("c1", entry(offset, b"i" * 500), epoch=1)
        database.write(batch)
        database.sync()
        acknowledged.append(offset)


async def fill_and_recover(small: Path) -> None:
    config = RocksdbConfig(write_buffer_bytes=4 * 1024 * 1024, tail_messages=0)
    database = RocksDatabase.open(small / "data", config=config, now_us=NOW_US)
    ballast = small / "ballast"
    ballast.write_bytes(os.urandom(4 * 1024 * 1024))
    create_session(database)
    acknowledged: list[int] = []
    with pytest.raises(StorageFull):
        write_until_full(database, acknowledged)
    assert len(acknowledged) > 100
    with pytest.raises(StorageFull):
        append_all(database, message())
    assert not await database.recover()
    assert [m.offset for m in await read_all(database, "#")] == acknowledged
    ballast.unlink()
    assert await database.recover()
    acknowledged += append_all(database, message("after"), now_us=0)
    database.sync()
    assert [m.offset for m in await read_all(database, "#")] == acknowledged
    database.close()
    database = RocksDatabase.open(small / "data", config=config)
    assert [m.offset for m in await read_all(database, "#")] == acknowledged
    assert list(database.check()) == []
    database.close()
