"""perdure storage, on a stopped directory and beside its owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.admin.records.storage import ListDatabases
from perdure.cli.commands import storage
from perdure.cli.main import run
from perdure.config.schema import RocksdbConfig
from perdure.errors import PerdureError
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import RETAINED, Engine
from perdure.topic.proposal import Structure

Capture = pytest.CaptureFixture[str]


def on(directory: Path, *args: str) -> list[str]:
    return ["storage", args[0], "--data", str(directory), *args[1:]]


def test_info(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "info", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["messages"] == 5
    assert found["sessions"] == 4
    assert found["shared_groups"] == 1
    assert found["retained_messages"] == 1
    assert found["generations"] == 1
    assert found["last_at"].startswith("2023-11-14T22:13:31")
    assert found["disk_bytes"] > 0
    assert run(on(directory, "info")) == 0
    assert "messages\t5\n" in capsys.readouterr().out


def test_no_directory(tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "info")) == 67
    assert "holds no database" in capsys.readouterr().err


def test_databases(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "databases", "--json")) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["database"], row["backend"], row["durability"]) == ("log", "rocksdb", "fsync")
    assert (row["shards"], row["generations"], row["message_count"]) == (1, 1, 5)
    assert row["last_at"].startswith("2023-11-14T22:13:31")
    assert run(on(directory, "databases")) == 0
    assert capsys.readouterr().out.startswith("log\trocksdb\tfsync\t1\t5\t")


def test_databases_of_a_running_broker(running: Any, tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "databases", "--json")) == 0
    assert running.asked == [ListDatabases()]
    assert json.loads(capsys.readouterr().out)[0]["database"] == "log"


def test_generations_and_streams(directory: Path, capsys: Capture) -> None:
    database = RocksDatabase.open(directory)
    database.rotate(1_700_000_100_000_000)
    database.close()
    assert run(on(directory, "generations", "--json")) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["generation"], first["state"], first["message_count"]) == (1, "closed", 5)
    assert (second["state"], second["until_offset"]) == ("current", None)
    assert run(on(directory, "streams", "--generation", "1")) == 0
    patterns = {line.split("\t")[2] for line in capsys.readouterr().out.splitlines()}
    assert "raw" in patterns
    assert run(on(directory, "streams", "--json")) == 0
    assert {row["generation"] for row in json.loads(capsys.readouterr().out)} == {1}
    assert run(on(directory, "streams", "--generation", "9")) == 67


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (512, "512B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert storage._rounded(size) == text


def test_files_may_vanish_while_they_are_counted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ghost = directory / "ghost"
    monkeypatch.setattr(Path, "rglob", lambda _self, _pattern: iter([ghost, directory / "CURRENT"]))
    assert storage._disk_bytes(directory) > 0


def test_check(directory: Path, capsys: Capture) -> None:
    assert run(on(directory, "check")) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"{directory}: ok\n")
    engine = Engine(directory, RocksdbConfig())
    engine.write([RETAINED, b"\x01bad", b"\xff"])
    engine.close()
    assert run(on(directory, "check", "--json")) == 65
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["table"] == RETAINED
    assert "problem" in captured.err


def test_rotate_asks_the_broker(
    running: Any, tmp_path: Path, full_disk: PerdureError, capsys: Capture
) -> None:
    assert run(on(tmp_path, "rotate", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["generation"] == 2
    running.refusal = full_disk
    assert run(on(tmp_path, "rotate")) == 75


def test_rotate_with_a_proposal(running: Any, tmp_path: Path, capsys: Capture) -> None:
    proposal = tmp_path / "proposal.json"
    content = {
        "version": 1,
        "database": "x",
        "through_offset": 5,
        "messages": 9,
        "thresholds": [100, 20],
        "structures": [
            {"pattern": "rooms/+/t", "messages": 9, "streams_before": 3},
            {"pattern": "a", "messages": 1, "streams_before": 1},
        ],
        "tables": {},
    }
    proposal.write_text(json.dumps(content))
    assert run(on(tmp_path, "rotate", "--proposal", str(proposal), "--json")) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["generation"] == 2
    assert "set storage.rocksdb.learn_thresholds to [100, 20]" in told.err
    assert running.structure == Structure((100, 20), ("rooms/+/t",))
    proposal.write_text("{}")
    assert run(on(tmp_path, "rotate", "--proposal", str(proposal))) == 78
    assert "this is no proposal" in capsys.readouterr().err


def test_rotate_needs_a_broker(directory: Path) -> None:
    assert run(on(directory, "rotate")) == 69
