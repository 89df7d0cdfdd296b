"""perdure storage read and export, on a stopped directory and beside its owner."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.admin.records.messages import MessageRow
from perdure.cli import storage_read
from perdure.cli.main import run
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.storage.rocksdb import RocksDatabase
from tests.support.staged import Staged

Capture = pytest.CaptureFixture[str]


def on(directory: Path, *args: str) -> list[str]:
    return ["storage", args[0], "--data", str(directory), *args[1:]]


def read(directory: Path, capsys: Capture, *args: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(on(directory, "read", "--json", *args)) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


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
    assert row["content_type"] is None
    assert list(row) == [field.name for field in msgspec.structs.fields(MessageRow)]  # as the API


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
    monkeypatch.setattr(storage_read, "READ_PAGE", 2)
    assert len(read(directory, capsys)) == 5
    assert len(read(directory, capsys, "-n", "3")) == 3


def test_read_for_people(directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_read, "PAYLOAD_SHOWN_MAX", 2)
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


def test_export_has_the_lines_of_read(directory: Path, tmp_path: Path, capsys: Capture) -> None:
    rows = read(directory, capsys)
    assert run(on(directory, "export")) == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == rows
    assert printed.err == ""
    target = tmp_path / "log.jsonl"
    assert run(on(directory, "export", "--to", str(target), "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert target.read_text(encoding="utf-8") == printed.out
    assert (told["messages"], told["bytes"]) == (5, target.stat().st_size)
    assert told["last_offset"] == 1_700_000_011_000_000, "of all there is, no message or not"
    packed = tmp_path / "log.jsonl.gz"
    assert run(on(directory, "export", "--to", str(packed))) == 0
    assert gzip.decompress(packed.read_bytes()) == target.read_bytes()
    assert run(on(directory, "export", "--to", str(tmp_path / "no" / "such"))) == 75
    assert list(tmp_path.glob("*.part")) == []


def test_export_goes_on_behind_an_offset(directory: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "first"
    until = ("--until", "2023-11-14T22:13:21.5Z", "-t", "devices/#")
    assert run(on(directory, "export", "--to", str(target), "--json", *until)) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["messages"] == 2
    assert run(on(directory, "export", "--after", str(first["last_offset"]))) == 0
    rest = [json.loads(line)["topic"] for line in capsys.readouterr().out.splitlines()]
    assert rest == ["devices/2/t", "devices/3/t", "raw"]
    assert run(on(directory, "export", "--to", str(target), "--json", "-t", "nothing")) == 0
    nothing = json.loads(capsys.readouterr().out)
    assert (nothing["messages"], target.read_bytes()) == (0, b"")
    assert run(on(directory, "export", "--after", str(nothing["last_offset"]))) == 0
    assert capsys.readouterr().out == ""
