"""Files that are replaced as a whole, and locks that end with whoever has them."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from perdure.files import AS_UMASK_SAYS, locked, replace_file, sync_directory, sync_file, try_lock


def test_it_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    written = replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert written.st_ino == path.stat().st_ino
    assert list(tmp_path.iterdir()) == [path]
    replace_file(path, b"for all", mode=AS_UMASK_SAYS)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_the_owner_stays_as_far_as_we_may_set_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    before = path.stat()
    given: list[tuple[int, int]] = []

    def refuse(_handle: int, uid: int, gid: int) -> None:
        given.append((uid, gid))
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    replace_file(path, b"new", owner=before)
    assert path.read_bytes() == b"new"
    assert given == [(before.st_uid, before.st_gid)]


@pytest.mark.parametrize("fails", ["fsync", "fstat"])
def test_a_failure_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, full)
        with pytest.raises(OSError, match="No space left"):
            replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_its_name_is_synced_after_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    replace_file(tmp_path / "secret", b"new")
    assert synced == [False, True]


def test_a_directory_that_is_none_is_not_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "none")
    (tmp_path / "file").touch()
    sync_file(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "file")


def test_one_has_the_lock_until_it_closes_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    first = try_lock(path)
    assert first is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not os.get_inheritable(first)
    assert try_lock(path) is None
    os.close(first)
    second = try_lock(path)
    assert second is not None
    os.close(second)
    with pytest.raises(FileNotFoundError):
        try_lock(tmp_path / "none" / ".lock")


def test_whoever_wants_the_lock_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    order: list[str] = []

    def wait() -> None:
        with locked(path):
            order.append("second")

    with locked(path):
        assert try_lock(path) is None
        waits = threading.Thread(target=wait)
        waits.start()
        order.append("first")
    waits.join()
    assert order == ["first", "second"]
    with pytest.raises(ValueError, match="no lock is left"), locked(path):
        raise ValueError("no lock is left by an error")
    after = try_lock(path)
    assert after is not None
    os.close(after)
