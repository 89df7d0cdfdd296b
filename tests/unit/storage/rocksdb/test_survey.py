"""Damage of write-ahead logs, and the end that a power cut leaves: told apart before an open."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.frames import Frames
from perdure.storage.rocksdb.survey import survey
from perdure.storage.rocksdb.synced import FILE_NAME
from perdure.storage.rocksdb.wal import batch_writes, log_batches, scan_log
from tests.contract.values import NOW_US, append_all, message, read_all

BATCHES = 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory as kill -9 leaves it: all but the last batch are covered by a sync."""
    database = RocksDatabase.open(tmp_path / "running", now_us=NOW_US)
    for number in range(BATCHES):
        append_all(database, message(f"t/{number}", b"%03d" % number * 40))
        if number < BATCHES - 1:
            database.sync()
    shutil.copytree(tmp_path / "running", tmp_path / "d")
    database.close()
    return tmp_path / "d"


def log_of(path: Path) -> Path:
    (log,) = [log for log in path.glob("*.log") if log.stat().st_size]
    return log


def ends(path: Path) -> list[int]:
    """Where each batch of the log ends."""
    frames = Frames(log_of(path).read_bytes())
    found: list[int] = []
    while frames.next():
        found.append(frames.end)
    return found


def count(path: Path) -> int:
    """How many messages a start finds."""
    database = RocksDatabase.open(path)
    messages = asyncio.run(read_all(database, "#"))
    assert [m.topic for m in messages] == [f"t/{number}" for number in range(len(messages))]
    assert list(database.check()) == []
    database.close()
    return len(messages)


def edit(path: Path, change: Callable[[bytearray], object]) -> None:
    log = log_of(path)
    data = bytearray(log.read_bytes())
    change(data)
    log.write_bytes(data)


def flip(data: bytearray, at: int) -> None:
    data[at] ^= 4


def refused(path: Path) -> str:
    """What a start says that refuses and changes nothing."""
    before = {file.name: file.read_bytes() for file in path.glob("0*")}
    with pytest.raises(StorageCorrupt) as caught:
        RocksDatabase.open(path)
    assert "perdure storage repair" in caught.value.hint
    assert {file.name: file.read_bytes() for file in path.glob("0*")} == before
    return caught.value.message


def test_a_whole_log(path: Path) -> None:
    found = survey(path, verify=True)
    assert (found.damages, found.torn, found.is_new) == ([], None, False)
    scan = scan_log(log_of(path), verify=True)
    assert (scan.problem, scan.intact_bytes) == ("", log_of(path).stat().st_size)
    writes = [w for batch in log_batches(log_of(path)) for w in batch_writes(batch)]
    assert len(writes) == scan.last - scan.first + 1
    assert count(path) == BATCHES


def test_a_flipped_byte_with_batches_behind_it(path: Path) -> None:
    at = ends(path)[-6] - 3
    edit(path, lambda data: flip(data, at))
    said = refused(path)
    assert log_of(path).name in said
    assert "a checksum does not match" in said
    assert "are whole behind it" in said


def test_a_flipped_byte_in_the_last_batch_that_was_synced(path: Path) -> None:
    last = ends(path)
    edit(path, lambda data: (flip(data, last[-2] - 3), data.__delitem__(slice(last[-2], None))))
    assert "a checksum does not match" in refused(path)


def test_garbage_behind_what_was_synced(path: Path) -> None:
    at = ends(path)[-1] - 3
    edit(path, lambda data: flip(data, at))
    found = survey(path, verify=True)
    assert found.damages == []
    assert found.torn is not None
    assert not found.torn.was_synced
    assert count(path) == BATCHES - 1


@pytest.mark.parametrize("zeros", [0, 10, 5_000])
def test_a_torn_end_that_was_not_synced(path: Path, zeros: int) -> None:
    size = ends(path)[-1] - 30
    edit(path, lambda data: (data.__delitem__(slice(size, None)), data.extend(bytes(zeros))))
    database = RocksDatabase.open(path)
    assert database.torn is not None
    assert not database.torn.was_synced
    database.close()
    assert count(path) == BATCHES - 1


def test_the_last_sync_is_torn(path: Path) -> None:
    size = ends(path)[-2] - 30
    edit(path, lambda data: data.__delitem__(slice(size, None)))
    database = RocksDatabase.open(path)
    assert database.torn is not None
    assert database.torn.was_synced
    assert database.torn.missing_writes > 0
    database.close()
    # What was lost is told once.
    database = RocksDatabase.open(path)
    assert database.torn is None
    database.close()
    assert count(path) == BATCHES - 2


@pytest.mark.parametrize("back", [4, 30])
def test_more_than_the_last_sync_is_missing(path: Path, back: int) -> None:
    """Cut inside a record, or between two."""
    size = ends(path)[-5] + (0 if back == 4 else -back)
    edit(path, lambda data: data.__delitem__(slice(size, None)))
    said = refused(path)
    assert "writes" in said


def test_zeros_in_the_middle(path: Path) -> None:
    first, last = ends(path)[2], ends(path)[4]
    edit(path, lambda data: data.__setitem__(slice(first, last), bytes(last - first)))
    refused(path)


def test_the_log_is_missing(path: Path) -> None:
    log_of(path).unlink()
    assert "missing" in refused(path)


@pytest.mark.parametrize("keeps_record", [True, False])
def test_all_logs_are_missing(path: Path, keeps_record: bool) -> None:
    """No new database is made over tables of an old one."""
    log_of(path).unlink()
    if not keeps_record:
        (path / FILE_NAME).unlink()
    with pytest.raises(StorageCorrupt):
        RocksDatabase.open(path)


def test_all_logs_are_missing_and_nothing_says_what_they_held(path: Path) -> None:
    RocksDatabase.open(path).close()  # writes tables
    for file in (*path.glob("*.log"), path / FILE_NAME):
        file.unlink()
    assert "with all other logs" in refused(path)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*"])
def test_what_lists_the_tables_is_missing(path: Path, name: str) -> None:
    for file in path.glob(name):
        file.unlink()
    assert "is missing" in refused(path)


def test_a_record_of_syncs_is_not_needed(path: Path) -> None:
    (path / FILE_NAME).unlink()
    database = RocksDatabase.open(path)
    assert not database.has_record
    database.close()
    database = RocksDatabase.open(path)
    assert database.has_record
    database.close()
    assert count(path) == BATCHES


def test_logs_follow_one_another(path: Path) -> None:
    """A second log whose writes do not begin where those of the first end."""
    log = log_of(path)
    later = path / f"{int(log.stem) + 1:06}.log"
    later.write_bytes(log.read_bytes())
    assert "exchanged" in refused(path)


def test_a_table_is_missing_or_cut(path: Path) -> None:
    RocksDatabase.open(path).close()
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = table.read_bytes()
    table.write_bytes(data[:-1])
    assert f"{table.name}: it has {len(data) - 1} bytes instead of {len(data)}" in refused(path)
    table.unlink()
    assert f"{table.name}: it is missing" in refused(path)


def test_a_manifest_that_was_longer(path: Path) -> None:
    RocksDatabase.open(path).close()
    (manifest,) = path.glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert manifest.name in refused(path)


def test_an_empty_directory_is_new(tmp_path: Path) -> None:
    assert survey(tmp_path).is_new
    assert survey(tmp_path / "missing").is_new
