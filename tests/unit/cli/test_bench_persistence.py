"""``perdure bench persistence``: options, tables, files, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.storebench import run as job
from tests.unit.storebench.fakes import comparison


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def compare(settings: Any, servers: Any, *, progress: Any) -> Any:
        found.update(settings=settings, servers=servers)
        progress("round", 0.5)
        return comparison()

    monkeypatch.setattr(job, "compare", compare)
    return found


def test_tables_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, asked: dict[str, Any]
) -> None:
    html, save = tmp_path / "page.html", tmp_path / "all.json"
    command = ["bench", "persistence", "--start", "--html", str(html), "--save", str(save)]
    assert run([*command, "--shape", "single", "--rounds", "5", "--check"]) == ExitCode.EXPECTATION
    told = capsys.readouterr().out
    assert "durable\tsingle\tredis-async\t500" in told
    assert "Not comparable" in told
    assert "<svg" in html.read_text()
    assert json.loads(save.read_text())["ratios"][0]["wanted"] == 2.5
    assert asked["settings"].shapes == ("single",)
    assert asked["settings"].rounds == 5
    assert asked["settings"].durabilities == ("durable", "relaxed")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "persistence", "--only", "embedded", "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == 7
    assert found["notes"]


def test_servers_that_run(asked: dict[str, Any]) -> None:
    line = ["bench", "persistence", "--only", "compact", "--redis", "redis://h"]
    assert run(line) == ExitCode.USAGE
    assert run([*line, "--durability", "relaxed"]) == ExitCode.OK
    assert asked["servers"].redis == "redis://h"


@pytest.mark.parametrize("options", [(), ("--only", "postgres-batched")])
def test_without_servers(options: tuple[str, ...]) -> None:
    assert run(["bench", "persistence", *options]) == ExitCode.USAGE
