"""An older release refuses what a newer one has written, and changes nothing of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from perdure.backup.directory import DirectoryPlace
from perdure.cli.main import run
from perdure.config.schema import RocksdbConfig
from perdure.storage.codec import encode_record
from perdure.storage.rocksdb import RocksDatabase, keys, opening
from perdure.storage.rocksdb.engine import META, Engine
from tests.unit.backup.conftest import back_up


def contents(path: Path) -> dict[str, str]:
    """What is in the files of a directory that hold data."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.iterdir()
        if file.is_file()
        and file.suffix in (".sst", "")
        and not file.name.startswith(("LOG", "LOCK", "OPTIONS"))
    }


@pytest.mark.parametrize("command", ["serve", "storage check", "storage read", "backup"])
def test_a_directory_of_a_later_format(
    data: Path, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = RocksDatabase.open(data)
    later = msgspec.structs.replace(database.format, version=opening.FORMAT + 1)
    database.close()
    engine = Engine(data, RocksdbConfig())
    engine.write([META, keys.FORMAT, encode_record(later)])
    engine.close()
    (data / "perdure.synced").unlink()
    before = contents(data) if command != "serve" else {}
    options = {"serve": ["--bind", "127.0.0.1:0"], "backup": ["--to", str(tmp_path / "b")]}
    assert run([*command.split(), "--data", str(data), *options.get(command, [])]) == 65
    said = capsys.readouterr()
    assert f"has format {opening.FORMAT + 1}; this release reads {opening.FORMAT}" in (
        said.out + said.err
    )
    if before:
        assert contents(data) == before


def test_a_place_of_a_later_format(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = DirectoryPlace(tmp_path / "b")
    back_up(data, place)
    place.put("perdure-backups.json", b'{"kind": "perdure-backups", "format": 9}')
    for args in (
        ["backup", "list", "--from", place.url],
        ["backup", "--to", place.url, "--data", str(data)],
        ["restore", "--from", place.url, "--data", str(tmp_path / "to")],
    ):
        assert run(args) == 65
        assert "has format 9; this release reads 1" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()
