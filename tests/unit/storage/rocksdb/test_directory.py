"""One owner of a directory, and a probe that believes no promise."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perdure.errors import ConfigError, StorageLocked, StorageUnavailable
from perdure.storage.rocksdb import directory
from perdure.storage.rocksdb.directory import (
    LOCK_NAME,
    DirectoryLock,
    is_owned,
    log_bytes,
    manifest_stamp,
    probe,
)


def test_lock_is_exclusive_and_released(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    lock = DirectoryLock(path)
    with pytest.raises(StorageLocked, match=f"process {os.getpid()}"):
        DirectoryLock(path)
    lock.release()
    DirectoryLock(path).release()


def test_whether_it_has_an_owner_is_seen_without_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_owned(tmp_path)
    assert not is_owned(tmp_path / "nowhere" / "data")
    lock = DirectoryLock(tmp_path)
    assert is_owned(tmp_path)
    lock.release()
    # A process that was killed leaves its file.
    assert (tmp_path / LOCK_NAME).exists()
    assert not is_owned(tmp_path)
    # What cannot be looked at is somebody's.
    monkeypatch.setattr(directory, "LOCKS", tmp_path / "nowhere")
    assert is_owned(tmp_path)
    (tmp_path / LOCK_NAME).unlink()
    (tmp_path / LOCK_NAME).symlink_to(LOCK_NAME)
    assert is_owned(tmp_path)


def test_names_of_new_directories_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink())
    )
    DirectoryLock(tmp_path / "new" / "data").release()
    assert set(synced) == {tmp_path, tmp_path / "new"}
    synced.clear()
    DirectoryLock(tmp_path / "new" / "data").release()
    assert synced == []


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """To try again does not help: it is the configuration that is wrong."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be used"):
        DirectoryLock(tmp_path / "file" / "data")


def test_a_directory_that_cannot_be_had_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageUnavailable, match="cannot be used"):
        DirectoryLock(tmp_path)


def test_owner_without_a_name_is_still_an_owner(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / "perdure.lock").write_bytes(b"")
    with pytest.raises(StorageLocked, match="another process"):
        DirectoryLock(tmp_path)
    lock.release()


def test_probe_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "000001.log").write_bytes(b"x" * 2_000_000)
    probe(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["000001.log"]


def test_a_log_that_is_deleted_meanwhile_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "000001.log").write_bytes(b"x" * 5)
    (tmp_path / "000002.log").symlink_to(tmp_path / "gone")
    assert log_bytes(tmp_path) == 5
    probe(tmp_path)


def test_probe_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        probe(tmp_path / "gone")


def test_the_manifest_tells_of_changes(tmp_path: Path) -> None:
    assert manifest_stamp(tmp_path) == ("", 0)
    (tmp_path / "CURRENT").write_text("MANIFEST-1\n")
    (tmp_path / "MANIFEST-1").write_bytes(b"abc")
    assert manifest_stamp(tmp_path) == ("MANIFEST-1", 3)
