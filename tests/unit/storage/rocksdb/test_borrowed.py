"""A reader without write permission sees the whole log, and leaves nothing behind."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.storage.rocksdb import RocksDatabase, borrowed
from perdure.storage.rocksdb.bulk import LogFiles
from tests.unit.pipeline.logs import SECOND, START, append, open_log

NOBODY = 65_534


def as_nobody(work: Callable[[], bool]) -> bool:
    """Do something in a process that owns nothing."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            done = work()
        except BaseException:  # noqa: BLE001 - told, and the child ends
            traceback.print_exc()
        finally:
            os._exit(0 if done else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def path() -> Iterator[Path]:
    """Where others may look, unlike below pytest's own directory."""
    with tempfile.TemporaryDirectory(prefix="perdure-test-") as home:
        Path(home).chmod(0o755)
        yield Path(home, "db")


def test_a_directory_that_may_not_be_written(path: Path) -> None:
    database = open_log(path)
    append(database, [f"t/{n}" for n in range(500)], at=START)
    database.rotate(START + SECOND)
    append(database, ["x"] * 100, at=START + 2 * SECOND)
    database.sync()
    # One part is in table files, the other in the write-ahead log of a writer that goes on.
    for file in path.iterdir():
        with suppress(FileNotFoundError):  # a log that the rotation made superfluous
            file.chmod(0o444)
    path.chmod(0o555)
    config = path / "rocksdict-config.json"
    written_at = config.stat().st_mtime_ns

    def read() -> bool:
        assert borrowed.needs_borrowing(path)
        log = LogFiles(path)
        parts = log.slices((), 0, START + 3 * SECOND, rows_max=10**9)
        rows = sum(len(page.keys) for each in parts for page in log.pages((), each, rows_max=99))
        log.close()
        return rows == 600

    try:
        assert as_nobody(read)
        assert config.stat().st_mtime_ns == written_at
        # The writer was not disturbed.
        append(database, ["x"], at=START + 4 * SECOND)
    finally:
        path.chmod(0o755)
        database.close()
    again = RocksDatabase.open(path, now_us=START + 5 * SECOND)
    assert again.last_offset == START + 4 * SECOND
    again.close()


def test_a_manifest_that_changes_meanwhile_is_tried_again(tmp_path: Path) -> None:
    import rocksdict

    (tmp_path / "CURRENT").write_text("MANIFEST-1\n")
    (tmp_path / "MANIFEST-1").touch()
    tried = []

    def open_at(home: Path) -> str:
        tried.append((home / "CURRENT").read_text())
        if len(tried) == 1:
            (tmp_path / "CURRENT").write_text("MANIFEST-2\n")
            raise OSError("MANIFEST-1 is gone")
        return "opened"

    home = borrowed.Borrowed(tmp_path)
    assert home.opened(rocksdict.Options(), open_at) == "opened"
    assert tried == ["MANIFEST-1\n", "MANIFEST-2\n"]
    home.close()
