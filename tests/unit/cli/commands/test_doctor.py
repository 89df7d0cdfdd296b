"""A configuration to begin with, and whether a machine is fit for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import run
from perdure.config.load import load
from perdure.server import doctor


def test_begun_from_nothing(tmp_path: Path, capsys: Any) -> None:
    home = tmp_path / "new"
    assert run(["init", str(home), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert "/ui/setup?token=" in made["setup_link"]
    assert (home / "data").stat().st_mode & 0o777 == 0o700
    loaded = load(home / "perdure.yaml", environ={}, sets=(), overrides=[])
    assert loaded.config.storage.path == str(home / "data")
    assert loaded.warnings == ()
    before = (home / "perdure.yaml").read_text()
    assert run(["init", str(home)]) == 65
    assert (home / "perdure.yaml").read_text() == before


def checks(capsys: Any, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    capsys.readouterr()
    code = run(["doctor", "--json", *arguments])
    return code, {each["check"]: each for each in json.loads(capsys.readouterr().out)}


def test_a_machine_that_is_fit(tmp_path: Path, capsys: Any) -> None:
    data = tmp_path / "not" / "there"
    code, found = checks(capsys, "--data", str(data), "--set", "listeners.tcp.bind=127.0.0.1:0")
    assert code == 0, found
    assert {"open files", "disk space", "disk sync", "clock", "versions", "broker"} <= set(found)
    assert found["disk sync"]["verdict"] in ("ok", "warning")
    assert not data.exists()


def test_what_is_wrong_is_told_with_its_remedy(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "FSYNC_SLOW_MS", -1.0)
    monkeypatch.setattr(doctor, "ROOM_MIN", 1 << 62)
    monkeypatch.setattr(doctor.time, "time", lambda: 0.0)
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (64, 64))
    users = f"auth.password_file={tmp_path}/nowhere"
    code, found = checks(capsys, "--data", str(tmp_path), "--set", users)
    assert code == 1
    for name in ("disk sync", "disk space", "open files"):
        assert found[name]["verdict"] == "warning"
        assert found[name]["remedy"]
    assert found["clock"]["verdict"] == "problem"
    assert found["auth.password_file"]["verdict"] == "problem"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_of_somebody_else(tmp_path: Path, capsys: Any) -> None:
    tmp_path.chmod(0o500)
    code, found = checks(capsys, "--data", str(tmp_path / "data"))
    assert (code, found["disk sync"]["verdict"]) == (1, "problem")
