"""What a log and its sessions will need, from logs whose rates are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.pipeline.jobs.capacity import CONNECTED_BYTES, OFFLINE_BYTES, Counts, plan
from tests.unit.pipeline.logs import SECOND, START, append, open_log

DAY_S = 86_400
NOW = Counts(
    messages=864_000,
    bytes=86_400_000,
    span_s=DAY_S,
    peak_per_s=40.0,
    sessions=100,
    connected=25,
)


def test_arithmetic() -> None:
    found = plan(NOW, keep_s=7 * DAY_S, generation_s=DAY_S, growth=1)
    assert found is not None
    assert (found.messages_per_s, found.peak_per_s, found.bytes_per_message) == (10, 40, 100)
    assert found.bytes_per_day == 86_400_000
    assert found.log_bytes == 8 * 86_400_000
    assert found.session_bytes == 25 * CONNECTED_BYTES + 75 * OFFLINE_BYTES
    double = plan(NOW, keep_s=7 * DAY_S, generation_s=DAY_S, growth=2)
    assert double is not None
    assert double.log_bytes == 2 * found.log_bytes
    assert (double.sessions, double.peak_per_s) == (200, 80)
    assert double.all_connected_bytes == 200 * CONNECTED_BYTES


def test_from_a_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = open_log(tmp_path / "db")
    command = ["plan", "capacity", "--data", str(tmp_path / "db"), "--json", "--growth", "3"]
    try:
        assert run(command) == ExitCode.NOT_FOUND
        assert "too short" in capsys.readouterr().err
        # One each second for two minutes, then ten each second.
        append(database, ["t/1"] * 120, at=START + 1, step=SECOND)
        database.rotate(START + 120 * SECOND)
        append(database, ["t/2"] * 1_200, at=START + 120 * SECOND + 1, step=SECOND // 10)
        assert run(command) == ExitCode.OK
        told = json.loads(capsys.readouterr().out)
    finally:
        database.close()
    assert told["messages_per_s"] == pytest.approx(3 * 1_320 / 240, rel=0.01)
    assert told["peak_per_s"] == pytest.approx(30, rel=0.01)
    assert told["sessions"] == 0
    assert told["log_bytes"] > told["bytes_per_day"] > 0
