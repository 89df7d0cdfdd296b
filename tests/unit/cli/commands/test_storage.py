"""perdure storage, on a stopped directory and beside its owner."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.commands import storage
from perdure.cli.main import run
from perdure.config.schema import RocksdbConfig
from perdure.errors import PerdureError
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import RETAINED, Engine
from perdure.topic.proposal import Structure
from tests.support.staged import Staged

Capture = pytest.CaptureFixture[str]


def on(directory: Path, *args: str) -> list[str]:
    return ["storage", args[0], "--data", str(directory), *args[1:]]


def read(directory: Path, capsys: Capture, *args: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(on(directory, "read", "--json", *args)) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


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


def test_read_everything(directory: Path, capsys: Capture) -> None:
    rows = read(directory, capsys)
    assert [row["topic"] for row in rows] == [*(f"devices/{n}/t" for n in range(4)), "raw"]
    first, *_, last = rows
    assert (first["payload_text"], first["payload"]) == ("0.5", "MC41")
    assert (first["qos"], first["publisher"]) == (1, "p")
    assert first["published_at"] == "2023-11-14T22:13:20.000000Z"
    assert (last["payload_text"], last["payload"]) == (None, "/wA=")
    assert (last["content_type"], last["user_properties"]) == ("a/b", [["k", "v"]])


def test_every_property_is_named(directory: Path, capsys: Capture) -> None:
    database = RocksDatabase.open(directory)
    batch = Staged(database)
    properties = forward_properties(
        Properties(
            payload_format_indicator=1,
            response_topic="back",
            correlation_data=b"\x00\xff",
            user_properties=(("a", "1"), ("a", "2")),
        )
    )
    batch.append(Message("props", b"", 1, properties=properties), 1_700_000_300_000_000)
    batch.write()
    database.close()
    (row,) = read(directory, capsys, "-t", "props")
    assert row["payload_format_indicator"] == 1
    assert row["response_topic"] == "back"
    assert row["correlation_data"] == "AP8="
    assert row["user_properties"] == [["a", "1"], ["a", "2"]]
    assert "content_type" not in row


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


def test_read_by_filter_time_and_count(directory: Path, capsys: Capture) -> None:
    topics = [row["topic"] for row in read(directory, capsys, "-t", "devices/+/t", "-n", "2")]
    assert topics == ["devices/0/t", "devices/1/t"]
    some = read(directory, capsys, "-t", "devices/3/t", "-t", "raw")
    assert [row["topic"] for row in some] == ["devices/3/t", "raw"]
    since = read(directory, capsys, "--from", "2023-11-14T22:13:22Z")
    assert [row["topic"] for row in since] == ["devices/2/t", "devices/3/t", "raw"]
    between = ("--from", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:22.5Z")
    assert [row["topic"] for row in read(directory, capsys, *between)] == [
        "devices/1/t",
        "devices/2/t",
    ]
    assert read(directory, capsys, "--from", "1s") == []


def test_read_goes_page_by_page(
    directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "READ_PAGE", 2)
    assert len(read(directory, capsys)) == 5
    assert len(read(directory, capsys, "-n", "3")) == 3


def test_read_for_people(directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PAYLOAD_SHOWN_MAX", 2)
    assert run(on(directory, "read", "--output", "csv")) == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert rows[0] == ["published_at", "topic", "qos", "publisher", "payload_shown"]
    assert rows[1][1:] == ["devices/0/t", "1", "p", "0.…"]
    monkeypatch.undo()
    assert run(on(directory, "read", "-t", "raw")) == 0
    assert capsys.readouterr().out.endswith("raw\t2\t\tbase64:/wA=\n")


@pytest.mark.parametrize(
    "args",
    [
        ["-t", "a/#/b"],
        ["-t", "$share/g/f"],
        ["-t", ""],
        ["--from", "yesterday"],
        ["--until", "x"],
        ["--from", "1h", "--until", "2h"],
        ["-n", "0"],
    ],
)
def test_read_misuse(directory: Path, args: list[str], capsys: Capture) -> None:
    assert run(on(directory, "read", *args)) == 64
    assert capsys.readouterr().out == ""


def test_read_beside_the_owner(directory: Path, capsys: Capture) -> None:
    database = RocksDatabase.open(directory)
    try:
        batch = Staged(database)
        batch.append(Message("new", b"n", 1), 1_700_000_200_000_000)
        batch.write()
        database.sync()
        assert [row["topic"] for row in read(directory, capsys, "-t", "new")] == ["new"]
    finally:
        database.close()


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
