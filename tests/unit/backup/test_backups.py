"""Taking, listing, verifying, pruning and restoring, on both kinds of places."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from perdure.backup import keeping, taking
from perdure.backup.keeping import Broken, find_backup, prune, read_backups, verify_backups
from perdure.backup.manifest import MANIFESTS, OBJECTS, BackupManifest
from perdure.backup.place import Place
from perdure.backup.restoring import restore
from perdure.backup.staging import staged_checkpoint
from perdure.config.schema import StorageConfig
from perdure.errors import (
    ConfigError,
    StorageCorrupt,
    StorageFull,
    StorageLocked,
    StorageUnavailable,
)
from perdure.server.stores import open_rocksdb
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.inspection import inspect
from tests.contract.values import NOW_US
from tests.unit.backup.conftest import CONFIG, back_up, write


def problems(place: Place, wanted: str = "") -> list[keeping.Problem]:
    return list(verify_backups(place, wanted, lambda _: None))


def topics(path: Path) -> list[str]:
    database = RocksDatabase.open(path, read_only=True)
    found = [
        message.topic
        for generation in database.tables()[1]
        for message in generation.layout.scan(["#"], after_offset=0, until_offset=2**62)
    ]
    database.close()
    return found


def test_a_backup_holds_everything_and_copies_it_once(
    data: Path, place: Place, tmp_path: Path
) -> None:
    first = back_up(data, place)
    assert (first.messages, first.sessions, first.position) == (1, 1, NOW_US)
    assert {file.name for file in first.files} >= {"side.file", "cursors/archive", "CURRENT"}
    # With tables on the disk, and later messages in the table.
    database = RocksDatabase.open(data, config=CONFIG)
    write(database, *(f"b/{number}" for number in range(2_000)))
    database.rotate(NOW_US)
    database.close()
    database = RocksDatabase.open(data, config=CONFIG)
    second = back_up(data, place)  # beside its owner
    write(database, "c/1")
    third = back_up(data, place)
    database.close()
    tables = {file.name for file in second.files if file.name.endswith(".sst")}
    assert tables
    assert third.copied < second.copied / 2
    assert third.copied + sum(f.size for f in third.files if f.name in tables) == third.size
    found = read_backups(place)
    assert found == [first, second, third]
    assert [each.id for each in found] == sorted({each.id for each in found})
    assert problems(place) == []
    for manifest, expected in ((first, 1), (second, 2_001), (third, 2_002)):
        to = tmp_path / manifest.id
        result = restore(place, manifest, to, config=CONFIG)
        assert (result.messages, result.position) == (expected, manifest.position)
        assert len(topics(to)) == expected
        assert (to / "side.file").read_text() == "client x\n"
        assert (to / "cursors" / "archive").read_text() == "7"
        assert list(inspect(to, CONFIG)) == []
    assert not (data / "checkpoints").exists()


def test_what_is_pruned_is_gone_and_the_rest_is_whole(data: Path, place: Place) -> None:
    place.grace_s = 0
    manifests = []
    for number in range(4):
        database = RocksDatabase.open(data, config=CONFIG)
        write(database, f"n/{number}")
        database.close()
        manifests.append(back_up(data, place))
    before = place.find(OBJECTS)
    rehearsed = prune(place, 2, dry_run=True)
    assert place.find(OBJECTS).keys() == before.keys()
    found = prune(place, 2)
    assert found == rehearsed
    assert found.backups == (manifests[0].id, manifests[1].id)
    assert found.kept == 2
    assert found.bytes > 0
    assert read_backups(place) == manifests[2:]
    assert problems(place) == []
    assert {file.object_name for each in manifests[2:] for file in each.files} == set(
        place.find(OBJECTS)
    )
    place.put(f"{MANIFESTS}20200101T000000.000000Z.json", b"half of")
    with pytest.raises(StorageCorrupt):
        prune(place, 1)
    assert len(read_backups(place)) == 3


def test_damage_is_found_and_never_restored(data: Path, place: Place, tmp_path: Path) -> None:
    manifest = back_up(data, place)
    table = next(file for file in manifest.files if file.name.endswith(".sst"))
    good = b"".join(place.read(table.object_name))
    for bad, problem in (
        (good[:-1], "bytes instead of"),
        (bytes([good[0] ^ 1]) + good[1:], "checksum"),
    ):
        place.put(table.object_name, bad)
        found = problems(place)
        assert [each.file for each in found] == [table.name]
        assert problem in found[0].problem
        with pytest.raises(StorageCorrupt, match="damaged"):
            restore(place, manifest, tmp_path / "to", config=CONFIG)
        # What is left there is no database for anyone.
        with pytest.raises(StorageCorrupt, match="not finished"):
            RocksDatabase.open(tmp_path / "to", config=CONFIG)
    place.delete([table.object_name])
    assert "missing" in problems(place)[0].problem
    place.put(table.object_name, good)
    assert problems(place) == []
    restore(place, manifest, tmp_path / "to", config=CONFIG)
    assert topics(tmp_path / "to") == ["a/1"]


def test_which_backup(data: Path, directory: Place) -> None:
    directory.make()
    with pytest.raises(ConfigError, match="no complete backup"):
        find_backup(directory, "")
    first, second = back_up(data, directory), back_up(data, directory)
    assert find_backup(directory, "") == second
    assert find_backup(directory, first.id) == first
    with pytest.raises(ConfigError, match="no backup 1999"):
        find_backup(directory, "1999")
    directory.put(f"{MANIFESTS}29990101T000000.000000Z.json", b"half of")
    # The newest is not whole: an older one is not taken in silence.
    with pytest.raises(StorageCorrupt):
        find_backup(directory, "")
    assert isinstance(read_backups(directory)[-1], Broken)


def test_no_room_is_said_before_anything_is_copied(
    data: Path, directory: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = back_up(data, directory)
    (data / "side.file").write_text("other")
    monkeypatch.setattr(type(directory), "free_bytes", lambda _: 1_000)
    with pytest.raises(StorageFull, match="the backup needs"):
        back_up(data, directory)
    assert read_backups(directory) == [manifest]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([1] * 10))
    with pytest.raises(StorageFull, match="it needs"):
        restore(directory, manifest, tmp_path / "to", config=CONFIG)


def test_only_an_empty_directory_is_filled(data: Path, directory: Place, tmp_path: Path) -> None:
    manifest = back_up(data, directory)
    with pytest.raises(ConfigError, match="not empty"):
        restore(directory, manifest, data, config=CONFIG)
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "lost+found").mkdir()
    restore(directory, manifest, tmp_path / "to", config=CONFIG)
    database = RocksDatabase.open(tmp_path / "new", config=CONFIG)
    with pytest.raises(ConfigError, match="not empty"):
        restore(directory, manifest, tmp_path / "new", config=CONFIG)
    database.close()
    with pytest.raises(ConfigError, match="reaches up to"):
        restore(directory, manifest, tmp_path / "x", config=CONFIG, at=manifest.position + 1)


def test_somebody_who_prunes_meanwhile(
    data: Path, directory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageLocked):
        back_up(data, directory, progress=lambda *_: prune(directory, 1))
    assert read_backups(directory) == []
    settle = type(directory).settle

    def lose(place: Place) -> None:
        settle(place)  # type: ignore[arg-type]
        if place.find(OBJECTS):
            shutil.rmtree(Path(place.url) / "objects")

    monkeypatch.setattr(type(directory), "settle", lose)
    with pytest.raises(StorageCorrupt, match="deleted or cut while"):
        back_up(data, directory)
    assert read_backups(directory) == []


def test_nothing_to_back_up(tmp_path: Path, directory: Place) -> None:
    with pytest.raises(StorageUnavailable, match="no database"):
        back_up(tmp_path, directory)


def test_a_clock_that_was_set_back(data: Path, directory: Place) -> None:
    first = back_up(data, directory)
    second = taking.take_backup(data, directory, config=CONFIG, version="1", now_us=NOW_US - 10**12)
    assert [each.id for each in read_backups(directory)] == [first.id, second.id]
    assert isinstance(find_backup(directory, ""), BackupManifest)
    assert find_backup(directory, "") == second


def test_what_a_dead_backup_left_goes_at_the_next_start(data: Path, directory: Place) -> None:
    left = data / "checkpoints" / "1-dead"
    left.mkdir(parents=True)
    (left / "000001.sst").write_bytes(b"")
    left.with_suffix(".lock").touch()
    with staged_checkpoint(data, CONFIG) as checkpoint:
        # It goes, and what another process is using stays.
        assert not left.exists()
        open_rocksdb(StorageConfig(path=str(data)), Engine).close()
        assert all(staged.path.exists() for staged in checkpoint.files)
    assert not (data / "checkpoints").exists()
    left.mkdir(parents=True)
    left.with_suffix(".lock").touch()
    open_rocksdb(StorageConfig(path=str(data)), Engine).close()
    assert not left.exists()


def test_users_are_copied_as_of_one_transaction(
    data: Path, directory: Place, tmp_path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(data / "identity.db")) as users:
        users.execute("PRAGMA journal_mode=WAL")
        users.execute("CREATE TABLE users (name TEXT)")
        users.execute("INSERT INTO users VALUES ('eva')")
        users.commit()
        users.execute("INSERT INTO users VALUES ('nobody yet')")
        manifest = back_up(data, directory)
    names = {file.name for file in manifest.files}
    assert "identity.db" in names
    assert not any(name.startswith("identity.db-") for name in names)
    restore(directory, manifest, tmp_path / "to", config=CONFIG)
    with contextlib.closing(sqlite3.connect(tmp_path / "to" / "identity.db")) as users:
        assert users.execute("SELECT name FROM users").fetchall() == [("eva",)]
