"""perdure status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import run


def test_numbers_and_exit_codes(
    running: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["storage"] == "ok"
    for state in ("failed", "refusing"):
        running.storage = state
        assert run(["status", "--data", str(tmp_path)]) == 75
        assert f"storage\t{state}\n" in capsys.readouterr().out


def test_numbers_of_another_node(
    running: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in ("n2", "*"):
        assert run(["status", "--node", node, "--data", str(tmp_path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["node"], told["rates"]["messages_received"]) == (node, 1.5)
    running.storage = "failed"
    assert run(["status", "--node", "n2", "--data", str(tmp_path)]) == 75
    capsys.readouterr()
    assert run(["status", "--node", "n9", "--data", str(tmp_path)]) == 67
    assert "no node 'n9' was heard of" in capsys.readouterr().err


def test_no_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--data", str(tmp_path)]) == 69
    assert "no broker runs on" in capsys.readouterr().err
