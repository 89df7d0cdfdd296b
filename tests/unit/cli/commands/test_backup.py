"""perdure backup and restore: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.commands.backup import NICENESS
from perdure.cli.main import run
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, append_all, create_session, message

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    create_session(database)
    append_all(database, *(message(f"t/{number}") for number in range(3)))
    database.close()
    return tmp_path / "d"


def test_from_the_first_to_the_last(
    data: Path, tmp_path: Path, capsys: Capture, niced: list[int]
) -> None:
    place = str(tmp_path / "b")
    for _ in range(2):
        assert run(["backup", "--data", str(data), "--to", place, "--rate", "1GiB", "--json"]) == 0
    assert niced == [NICENESS, NICENESS]
    made = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (made["messages"], made["sessions"], made["position"]) == (3, 1, NOW_US + 2)
    assert run(["backup", "list", "--from", place, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed[-1] == made
    assert len(listed) == 2
    assert run(["backup", "verify", "--from", place]) == 0
    assert run(["backup", "verify", "--from", place, "--backup", "1999"]) == 67
    assert run(["backup", "prune", "--from", place, "--keep", "1", "--json"]) == 0
    capsys.readouterr()
    restore = ["restore", "--from", place, "--data", str(tmp_path / "to")]
    assert run([*restore, "--at", "yesterday"]) == 64
    assert run([*restore, "--at", str(NOW_US + 10**9)]) == 67
    assert "the last one ends at 2023-11-14T22:13:20" in capsys.readouterr().err
    assert run([*restore, "--at", str(NOW_US + 1)]) == 0
    said = capsys.readouterr().out
    assert f"2 messages, 1 sessions, 0 retained messages, up to offset {NOW_US + 1}" in said
    assert "Session Present 0" in said
    assert "Cut off behind that: 1 messages" in said
    assert "Not known" in said
    assert run(restore) == 78
    assert "not empty" in capsys.readouterr().err
    assert run(["storage", "check", "--data", str(tmp_path / "to")]) == 0
    damaged = next(file for file in (tmp_path / "b" / "objects").rglob("*") if file.is_file())
    damaged.write_bytes(b"other")
    assert run(["backup", "verify", "--from", place]) == 65


def test_what_cannot_be_backed_up(data: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(["backup", "--data", str(data)]) == 64
    assert run(["backup", "--data", str(tmp_path), "--to", str(tmp_path / "b")]) == 67
    assert run(["backup", "--data", str(data), "--to", str(data)]) == 78
    assert run(["backup", "list", "--from", str(tmp_path / "none")]) == 78
    capsys.readouterr()
    for backend, remedy in (("redis", "AOF"), ("postgres", "pg_dump"), ("memory", "rocksdb")):
        for command in (["backup", "--to", "b"], ["restore", "--from", "b"]):
            assert run([*command, "--set", f"storage.backend={backend}"]) == 78
            said = capsys.readouterr().err
            assert f"storage.backend is {backend}" in said
            assert remedy in said
