"""kill -9 at every step of a backup and of a restore that touches a file of ours.

A child process counts what the interpreter tells its audit hooks (files opened, linked, renamed,
deleted) below the test's directory, and dies at the n-th; the next child dies one later.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import final

import pytest

from perdure.backup.directory import DirectoryPlace
from perdure.backup.keeping import prune, read_backups, verify_backups
from perdure.backup.manifest import BackupManifest
from perdure.backup.restoring import restore
from perdure.backup.taking import take_backup
from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, append_all, create_session, message

CONFIG = RocksdbConfig()


@final
class Dying:
    """The process that makes children; see ``tests.crash.dying``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.dying"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def run_until(self, step: int, below: Path, *what: object) -> bool:
        """Run something in a child that dies at a step; returns whether it came to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(step, below, *what, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer in {"killed", "ended 0"}
        return answer != "killed"

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@pytest.fixture(scope="module")
def dying() -> Iterator[Dying]:
    process = Dying()
    yield process
    process.close()


def back_up(data: Path, place: DirectoryPlace) -> BackupManifest:
    return take_backup(data, place, config=CONFIG, version="1", now_us=NOW_US)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d"
    database = RocksDatabase.open(path, config=CONFIG, now_us=NOW_US)
    create_session(database)
    append_all(database, *(message(f"t/{number}") for number in range(5)))
    database.close()
    (path / "bans").write_text("")
    return path


def messages(path: Path) -> int:
    with contextlib.closing(RocksDatabase.open(path, config=CONFIG)) as database:
        return sum(each.message_count for each in database.generations())


@pytest.mark.slow
def test_a_backup_that_is_killed_is_none(dying: Dying, data: Path, tmp_path: Path) -> None:
    """Each one that dies has its own place and one in which an older backup is."""
    place = DirectoryPlace(tmp_path / "b")
    older = back_up(data, place)
    with contextlib.closing(RocksDatabase.open(data, config=CONFIG)) as database:
        append_all(database, message("more"))
    step, ended = 0, False
    while not ended:
        step += 1
        shutil.rmtree(tmp_path / "now", ignore_errors=True)
        shutil.copytree(tmp_path / "b", tmp_path / "now")
        now = DirectoryPlace(tmp_path / "now")
        ended = dying.run_until(step, tmp_path, "backup", data, now.url, NOW_US)
        found = read_backups(now)
        assert found[0] == older
        assert len(found) == 2 or not ended
        # Whatever there is, is whole; the next one succeeds, and leaves nothing behind.
        assert list(verify_backups(now, "", lambda _: None)) == []
        newest = back_up(data, now)
        assert newest.messages == 6
        assert list(verify_backups(now, "", lambda _: None)) == []
        prune(now, 1)
        assert read_backups(now) == [newest]
        assert list(verify_backups(now, "", lambda _: None)) == []
        assert not (data / "checkpoints").exists()
    assert step > 30
    assert messages(data) == 6


@pytest.mark.slow
def test_a_restore_that_is_killed_is_no_database(dying: Dying, data: Path, tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path / "b")
    manifest = back_up(data, place)
    at = manifest.position - 2

    def run() -> None:
        restore(place, manifest, tmp_path / "to", config=CONFIG, at=at)

    step, ended, refused = 0, False, 0
    while not ended:
        step += 1
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
        ended = dying.run_until(step, tmp_path / "to", "restore", tmp_path / "to", place.url, at)
        if (tmp_path / "to").is_dir() and any((tmp_path / "to").iterdir()):
            try:
                assert messages(tmp_path / "to") in ((3,) if ended else (0, 3))
            except StorageCorrupt as error:
                assert "not finished" in error.message  # noqa: PT017 - either is right
                refused += 1
                if refused % 8 == 1:
                    run()  # begins anew
                    assert messages(tmp_path / "to") == 3
        else:
            assert not ended
    assert refused > 20
