"""Files that are replaced as a whole: private, durable, never in part."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perdure.broker.auth.private_file import replace_file


def test_it_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    written = replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert written.st_ino == path.stat().st_ino
    assert list(tmp_path.iterdir()) == [path]


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
