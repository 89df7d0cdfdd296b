"""Files beside the database: damage is found, put aside, and named with the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.broker.auth.key_file import KEY_FILE, load_or_create_key
from perdure.cli.main import run
from perdure.errors import StorageCorrupt
from perdure.forwarders.origin import ORIGIN_FILE
from perdure.identity.file import FILE_NAME, IdentityFile
from perdure.server.own_files import damaged_files
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.fixtures import logging_as_before

__all__ = ["logging_as_before"]

HARMS: list[Callable[[bytes], bytes]] = [
    lambda data: data[: len(data) // 2],
    lambda data: b"\xff" + data,
    lambda data: b"hello world\n",
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    RocksDatabase.open(tmp_path, now_us=1).close()
    for name in (KEY_FILE, ORIGIN_FILE):
        load_or_create_key(tmp_path / name, b"k" * 32)
    IdentityFile(tmp_path).close()
    return tmp_path


def test_nothing_is_wrong(directory: Path) -> None:
    assert list(damaged_files(directory)) == []
    with IdentityFile(directory):
        assert list(damaged_files(directory)) == []
    for name in (KEY_FILE, ORIGIN_FILE, FILE_NAME):
        (directory / name).unlink()
    assert list(damaged_files(directory)) == []


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", [KEY_FILE, ORIGIN_FILE, FILE_NAME])
def test_what_is_damaged_is_put_aside(
    directory: Path, name: str, harm: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory / name
    damaged = harm(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(StorageCorrupt, match=f"{name} is damaged") as refused:
        IdentityFile(directory).close() if name == FILE_NAME else load_or_create_key(path, b"")
    assert "storage repair" in refused.value.hint
    command = ("--data", str(directory))
    assert run(["storage", "check", *command]) == 65
    assert name in capsys.readouterr().out
    assert run(["storage", "repair", *command, "--yes"]) == 0
    assert not path.exists()
    [aside] = directory.glob("damaged-*")
    assert (aside / name).read_bytes() == damaged
    assert run(["storage", "check", *command]) == 0
    RocksDatabase.open(directory).close()
