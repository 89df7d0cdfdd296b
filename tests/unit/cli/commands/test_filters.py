"""perdure filters, on a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.filters import DeleteFilter, PutFilter
from perdure.cli.main import run
from tests.unit.cli.conftest import FakeBroker

Capture = pytest.CaptureFixture[str]


def on(directory: Path, *args: str) -> list[str]:
    return ["filters", args[0], "--data", str(directory), *args[1:]]


def test_all_of_it(running: FakeBroker, tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "put", "warm", '{"t": 20}', "--json")) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["filter"], row["changed"]) == ("warm", '{"t": 20}', 2)
    assert run(on(tmp_path, "list", "--json")) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert run(on(tmp_path, "get", "hot", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == listed
    assert (listed["id"], listed["state"]) == ("hot", "settled")
    assert run(on(tmp_path, "delete", "hot")) == 0
    assert capsys.readouterr().out == "hot\tdeleted\n"
    assert running.asked == [PutFilter(id="warm", filter='{"t": 20}'), DeleteFilter(id="hot")]


def test_what_goes_wrong(running: FakeBroker, tmp_path: Path, capsys: Capture) -> None:
    assert run(on(tmp_path, "get", "cold")) == 67
    assert "there is no stored content filter 'cold'" in capsys.readouterr().err
    running.refusal = Refused("conflict", "c subscribe with the content filter 'hot'")
    assert run(on(tmp_path, "put", "hot", "{}")) == 65
    assert "c subscribe" in capsys.readouterr().err
    assert run(on(tmp_path / "none", "list")) == 69
    assert "no broker runs on" in capsys.readouterr().err
