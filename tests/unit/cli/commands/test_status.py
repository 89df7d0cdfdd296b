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


def test_no_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--data", str(tmp_path)]) == 69
    assert "no broker runs on" in capsys.readouterr().err
