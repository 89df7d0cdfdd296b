"""Checkpoints beside a writer: a whole prefix of what was written, with all that was synced."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.storage.rocksdb import RocksDatabase, checkpoint
from perdure.storage.rocksdb.checkpoint import link_checkpoint
from perdure.storage.rocksdb.directory import RESTORING_NAME
from perdure.storage.rocksdb.inspection import inspect
from perdure.storage.rocksdb.repair import repair_directory
from tests.contract.values import NOW_US, append_all, message

SMALL = RocksdbConfig(write_buffer_bytes=256 * 1024)
"""Flushed and compacted all the time."""


def test_a_writer_that_flushes_all_the_time(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", config=SMALL, now_us=NOW_US)
    stopping = threading.Event()
    synced = [0]

    def write() -> None:
        number = 0
        while not stopping.is_set():
            sent = [message(f"t/{number}", b"x" * 400) for _ in range(8)]
            last = append_all(database, *sent, now_us=NOW_US)[-1]
            database.sync()
            synced[0] = last
            number += 1
            if number % 40 == 0:
                database.rotate(NOW_US)
            # A broker is another process, which does not hold this one's interpreter.
            stopping.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = 0
        for number in range(12):
            while synced[0] < before + 100:
                time.sleep(0.001)
            before = synced[0]
            to = tmp_path / f"c{number}"
            link_checkpoint(tmp_path / "d", to)
            found = RocksDatabase.open(to, config=SMALL, read_only=True)
            offsets = [
                each.offset
                for generation in found.tables()[1]
                for each in generation.layout.scan(["#"], after_offset=0, until_offset=2**62)
            ]
            assert found.last_offset >= before
            found.close()
            # A prefix, and nothing that is only in part there.
            assert offsets == list(range(NOW_US, NOW_US + len(offsets)))
            assert offsets[-1] >= before
            assert list(inspect(to, SMALL)) == []
    finally:
        stopping.set()
        writer.join()
        database.close()


def test_a_generation_that_begins_when_all_files_are_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables are not in the manifest, so it may not be in the logs either."""
    database = RocksDatabase.open(tmp_path / "d", config=SMALL, now_us=NOW_US)
    last = append_all(database, message("t", b"before"), now_us=NOW_US)[-1]
    database.sync()
    looks = 0
    real = checkpoint.manifest_stamp

    def stamp_of(path: Path) -> tuple[str, int]:
        nonlocal looks
        looks += 1
        found = real(path)
        if looks == 2:
            database.rotate(NOW_US)
            append_all(database, message("t", b"after"), now_us=NOW_US)
            database.sync()
        return found

    monkeypatch.setattr(checkpoint, "manifest_stamp", stamp_of)
    link_checkpoint(tmp_path / "d", tmp_path / "c")
    database.close()
    assert looks == 2
    found = RocksDatabase.open(tmp_path / "c", config=SMALL, read_only=True)
    assert found.last_offset == last
    found.close()


def test_a_directory_that_never_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RocksDatabase.open(tmp_path / "d", config=SMALL).close()
    stamps = iter(range(10**6))
    monkeypatch.setattr(checkpoint, "_ATTEMPTS", 3)
    real = checkpoint.manifest_stamp

    def restless(path: Path) -> tuple[str, int]:
        return real(path)[0], real(path)[1] - next(stamps) % 2

    monkeypatch.setattr(checkpoint, "manifest_stamp", restless)
    with pytest.raises(StorageUnavailable, match="changes too fast"):
        link_checkpoint(tmp_path / "d", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_damage_is_not_copied(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", config=SMALL)
    append_all(database, message())
    database.close()
    next((tmp_path / "d").glob("*.sst")).write_bytes(b"")
    with pytest.raises(StorageCorrupt, match=f"{tmp_path / 'd'} is damaged"):
        link_checkpoint(tmp_path / "d", tmp_path / "c")
    with pytest.raises(StorageUnavailable, match="no database"):
        link_checkpoint(tmp_path / "none", tmp_path / "c")


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = RocksDatabase.open(tmp_path / "d", config=SMALL)
    append_all(database, message())
    database.close()

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(checkpoint.os, "link", refuse)
    link_checkpoint(tmp_path / "d", tmp_path / "c")
    assert list(inspect(tmp_path / "c", SMALL)) == []


def test_a_restore_that_was_not_finished_is_no_database(tmp_path: Path) -> None:
    (tmp_path / RESTORING_NAME).mkdir()
    with pytest.raises(StorageCorrupt, match="not finished") as caught:
        RocksDatabase.open(tmp_path, config=SMALL)
    assert "perdure restore" in caught.value.hint
    with pytest.raises(StorageCorrupt, match="not finished"):
        repair_directory(tmp_path, SMALL, stamp="x", say=lambda _: None)
    assert [each.table for each in inspect(tmp_path, SMALL)] == [RESTORING_NAME]
    assert {each.name for each in tmp_path.iterdir()} <= {RESTORING_NAME, "perdure.lock"}
