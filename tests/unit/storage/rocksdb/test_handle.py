"""An engine that fails, comes back, and is closed; through the database that uses it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import (
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, append_all, create_session, entry, message, read_all
from tests.unit.storage.rocksdb.faults import Disk


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


async def test_damage_that_is_met_again_is_not_recovered_from(
    database: RocksDatabase, disk: Disk
) -> None:
    """As a merge meets it: each time the database was opened anew it would take one write less."""
    append_all(database, message("a/1"))
    damage = StorageCorrupt("Corruption: block checksum mismatch in 000019.sst offset 0")
    for met in range(2):
        disk.write_error = damage
        with pytest.raises(StorageCorrupt):
            append_all(database, message("a/2"))
        disk.write_error = None
        if met == 0:
            assert await database.recover()
    opened = disk.opened
    for _ in range(2):
        with pytest.raises(StorageCorrupt, match=r"000019\.sst offset 0: met again") as told:
            await database.recover()
        assert "storage repair" in told.value.hint
    assert disk.opened == opened
    assert database.has_failed
    assert [m.topic for m in await read_all(database, "#")] == ["a/1"]


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
    for _ in range(2):
        with pytest.raises(StorageCorrupt, match="had been synced"):
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
    with database._handle.lock:
        assert not await database.recover()
    assert await database.recover()


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
        batch = Batch()
        value, private = message(f"t/{number % 50}", os.urandom(1_000)), entry(0, b"i" * 500)
        batch.append(value)
        batch.place(private)
        batch.put_inbox("c1", private, epoch=1)
        database.submit(batch, 0)
        database.sync()
        acknowledged.append(value.offset)


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
