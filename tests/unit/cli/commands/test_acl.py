"""perdure acl, on a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.access import PutAclText
from perdure.cli.main import run
from tests.unit.cli.conftest import FakeBroker

Capture = pytest.CaptureFixture[str]


def on(directory: Path, *args: str) -> list[str]:
    return ["acl", args[0], "--data", str(directory), *args[1:]]


def test_what_is_printed_can_be_put_back(
    running: FakeBroker, tmp_path: Path, capsys: Capture
) -> None:
    assert run(on(tmp_path, "get")) == 0
    text = capsys.readouterr().out
    assert text == running.rules
    assert run(on(tmp_path, "get", "--json")) == 0
    revision = json.loads(capsys.readouterr().out)["revision"]
    file = tmp_path / "acl"
    file.write_text(text)
    assert run(on(tmp_path, "put", str(file), "--if-match", revision, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rules"], told["closed"]) == (2, 3)
    assert running.asked == [PutAclText(text=text, if_match="r1")]


def test_rules_are_listed_and_who_has_none_is_told(
    running: FakeBroker, tmp_path: Path, capsys: Capture
) -> None:
    assert run(on(tmp_path, "list")) == 0
    assert capsys.readouterr().out == "1\tanonymous\t\tread\ta/#\n"
    running.rules = ""
    assert run(on(tmp_path, "list", "--json")) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert "everything is allowed" in told.err


def test_what_cannot_be_put(running: FakeBroker, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "acl"
    file.write_bytes(b"\xff")
    assert run(on(tmp_path, "put", str(file))) == 65
    assert "is not UTF-8" in capsys.readouterr().err
    assert run(on(tmp_path, "put", str(tmp_path / "absent"))) == 64
    assert running.asked == []
    running.refusal = Refused("config_invalid", "line 1: no such word")
    file.write_text("topics #")
    assert run(on(tmp_path, "put", str(file))) != 0
    assert "line 1: no such word" in capsys.readouterr().err
