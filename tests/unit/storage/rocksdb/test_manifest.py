"""The manifest, compared with what RocksDB says of the same database."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.frames import Frames
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.manifest import (
    Manifest,
    TableFile,
    current_manifest,
    forget_files,
    read_manifest,
)
from tests.contract.values import NOW_US, append_all, message


def test_it_says_what_rocksdb_says(tmp_path: Path) -> None:
    path = tmp_path / "d"
    database = RocksDatabase.open(path, now_us=NOW_US)
    append_all(database, *[message(f"t/{number}") for number in range(300)])
    database.rotate(NOW_US + 1_000_000)
    append_all(database, message("t"), now_us=NOW_US + 2_000_000)
    database.close()
    database = RocksDatabase.open(path)
    engine, _ = database.tables()
    sequence, tables = engine.sequence(), engine.tables
    file = current_manifest(path)
    assert file is not None
    manifest = read_manifest(file, verify=True)
    assert manifest.problem == ""
    assert set(manifest.tables.values()) == tables
    assert manifest.last_sequence == sequence
    assert {table.name for table in manifest.files.values()} == {f.name for f in path.glob("*.sst")}
    for table in manifest.files.values():
        assert (path / table.name).stat().st_size == table.size
        name = manifest.tables[table.family]
        keys = list(engine.keys(name, b"", b"\xff" * 32))
        assert keys[0] <= table.smallest <= table.largest <= keys[-1]
        assert table.first_sequence <= table.last_sequence <= sequence
    live = sorted(int(log.stem) for log in path.glob("*.log"))
    assert manifest.first_log <= live[-1]
    database.close()


def test_rocksdb_opens_without_a_file_that_was_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "d"
    database = RocksDatabase.open(path, now_us=NOW_US)
    append_all(database, message("a"), message("b"))
    database.close()
    RocksDatabase.open(path).close()
    file = current_manifest(path)
    assert file is not None
    manifest = read_manifest(file)
    data = [t for t in manifest.files.values() if manifest.tables[t.family] == table_names(1)[0]]
    forget_files(file, data)
    for table in data:
        (path / table.name).unlink()
    database = RocksDatabase.open(path)
    assert [f.problem for f in database.check()][-1] == "0 messages, but 2 were counted"
    database.close()


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    assert current_manifest(tmp_path) is None
    (tmp_path / "CURRENT").write_bytes(b"\xff\xfe")
    assert current_manifest(tmp_path) is None
    (tmp_path / "CURRENT").write_text("../etc\n")
    assert current_manifest(tmp_path) is None


def test_damage_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "d"
    RocksDatabase.open(path, now_us=NOW_US).close()
    file = current_manifest(path)
    assert file is not None
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert "checksum" in read_manifest(file, verify=True).problem
    file.write_bytes(data[: len(data) // 3])
    assert read_manifest(file).problem.startswith("byte ")


def test_a_kind_of_record_that_rocksdb_would_read_for_ever_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by those who only read, which look at nothing else before."""
    path = tmp_path / "d"
    RocksDatabase.open(path, now_us=NOW_US).close()
    file = current_manifest(path)
    assert file is not None
    data = file.read_bytes()
    frames = Frames(data)
    starts = []
    while frames.next():
        starts.append(frames.start)
    # It would not come back.
    monkeypatch.setattr("rocksdict.Rdict.list_cf", lambda *_: pytest.fail("RocksDB was asked"))
    for start in starts:
        flipped = bytearray(data)
        flipped[start + 6] ^= 4  # a whole record of a log that is reused
        file.write_bytes(flipped)
        for read_only in (False, True):
            with pytest.raises(StorageCorrupt, match=f"byte {start}: a record is garbled"):
                RocksDatabase.open(path, read_only=read_only)


def test_a_key_that_is_shorter_than_what_stands_behind_each_is_damage() -> None:
    """Also compiled, where a slice that ends before it begins is no empty one."""
    new_file, level, number, size = 103, 0, 7, 100
    for smallest, largest in ((b"12345678", b"x"), (b"", b"12345678")):
        edit = bytes([new_file, level, number, size, len(smallest)]) + smallest
        edit += bytes([len(largest)]) + largest + bytes([1, 2, 1])
        with pytest.raises(StorageCorrupt, match="does not decode"):
            Manifest("MANIFEST-000001").apply(edit)


def test_what_a_file_holds() -> None:
    """Files that were merged have no sequences of writes any more."""
    flushed = TableFile(0, 0, 7, 4096, b"a", b"z", 10, 19)
    assert flushed.holds("state").endswith("10 writes at most")
    merged = flushed._replace(level=6, first_sequence=0, last_sequence=0)
    assert merged.holds("state") == "it holds rows of table state, 4096 bytes"
    assert merged._replace(level=0).holds("state").endswith("4096 bytes")
