"""perdure bans, on a stopped broker's file and on a running broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.admin.records.bans import AddBan, RemoveBan
from perdure.broker.auth.bans import BanFile
from perdure.cli.commands.bans import _end
from perdure.cli.main import run
from tests.unit.cli.conftest import FakeBroker

Capture = pytest.CaptureFixture[str]


def on(directory: Path, *args: str) -> list[str]:
    return ["bans", args[0], "--data", str(directory), *args[1:]]


def listed(directory: Path, capsys: Capture) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(on(directory, "list", "--json")) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_a_stopped_broker(tmp_path: Path, capsys: Capture) -> None:
    assert listed(tmp_path, capsys) == []
    whom = ["--client-id", "a", "--username", "u", "--address", "10.1.2.3/8"]
    assert run(on(tmp_path, "add", *whom, "--reason", "why", "--json")) == 0
    added = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["value"], row["closed"]) for row in added] == [
        ("client_id", "a", 0),
        ("username", "u", 0),
        ("address", "10.0.0.0/8", 0),
    ]
    rows = listed(tmp_path, capsys)
    assert [row["reason"] for row in rows] == ["why"] * 3
    assert all(row["until"] is None and row["since"] for row in rows)
    assert [ban.value for ban in BanFile(tmp_path / "bans").load()] == ["a", "u", "10.0.0.0/8"]
    assert run(on(tmp_path, "remove", "--client-id", "a", "--client-id", "b")) == 67
    told = capsys.readouterr()
    assert told.out == "client_id\ta\tremoved\n"
    assert "there is no ban of client_id 'b'" in told.err
    assert [row["kind"] for row in listed(tmp_path, capsys)] == ["username", "address"]


def test_another_file(tmp_path: Path, capsys: Capture) -> None:
    sets = ["--set", "storage.backend=memory", "--set", f"auth.ban_file={tmp_path / 'b'}"]
    assert run(["bans", "add", "--client-id", "c", *sets]) == 0
    assert (tmp_path / "b").exists()
    assert run(["bans", "list", *sets[:2]]) == 67
    assert "kept nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["add"], 64),
        (["remove"], 64),
        (["add", "--client-id", "c", "--until", "soon"], 64),
        (["add", "--client-id", "c", "--until", "2001-01-01T00:00:00Z"], 64),
        (["add", "--address", "nowhere"], 78),
        (["remove", "--address", "nowhere"], 78),
        (["add", "--client-id", "c", "--reason", "x" * 300], 78),
    ],
)
def test_wrong_usage(tmp_path: Path, args: list[str], code: int, capsys: Capture) -> None:
    assert run(on(tmp_path, *args)) == code
    assert capsys.readouterr().err.startswith("perdure: ")
    assert not (tmp_path / "bans").exists()


def test_when_it_ends() -> None:
    now_us = 1_700_000_000_000_000
    assert _end("2h", now_us) == now_us + 7_200_000_000
    assert _end("2100-01-01T00:00:00Z", now_us) == 4_102_444_800_000_000
    assert _end("1800000000000000", now_us) == 1_800_000_000_000_000


def test_a_running_broker(tmp_path: Path, running: FakeBroker, capsys: Capture) -> None:
    assert [row["value"] for row in listed(tmp_path, capsys)] == ["c0", "c1"]
    assert run(on(tmp_path, "add", "--client-id", "c", "--reason", "r", "--json")) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["closed"] == 1
    assert run(on(tmp_path, "remove", "--username", "there", "--username", "u")) == 67
    assert capsys.readouterr().out == "username\tthere\tremoved\n"
    assert running.asked == [
        AddBan(kind="client_id", value="c", reason="r"),
        RemoveBan(kind="username", value="there"),
        RemoveBan(kind="username", value="u"),
    ]
    assert not (tmp_path / "bans").exists(), "the broker writes its file"
