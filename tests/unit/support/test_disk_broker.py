"""The broker on a disk that obeys: its command line. ``tests/crash`` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.disk import BROKEN, Disk
from tests.support.disk_broker import disk_command, main
from tests.unit.fixtures import logging_as_before

__all__ = ["logging_as_before"]


def test_the_command_runs_this_module(tmp_path: Path) -> None:
    command = disk_command(tmp_path / "disk", tmp_path / "data", 1884, "--set", "a.b=c")
    assert command[:3] == [sys.executable, "-m", "tests.support.disk_broker"]
    assert command[3:7] == ["--disk", str(tmp_path / "disk"), "--data", str(tmp_path / "data")]
    assert command[7:] == ["--bind", "127.0.0.1:1884", "--set", "a.b=c"]


def test_a_start_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = Disk(tmp_path / "disk", tmp_path / "data")
    disk.fail(open=BROKEN)
    command = disk_command(disk.path, tmp_path / "data", 0, "--set", "log.level=error")
    assert main(command[3:]) == 1
    assert "Input/output error" in capsys.readouterr().err
