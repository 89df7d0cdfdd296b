"""What a log and its sessions will need, from logs whose rates are known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.model import Cursor, SessionRecord, Subscription
from perdure.pipeline.jobs.capacity import (
    CELL_MESSAGES_PER_S,
    CONNECTED_BYTES,
    OFFLINE_BYTES,
    Counts,
    plan,
)
from perdure.storage.batch import Batch
from tests.unit.pipeline.logs import SECOND, START, append, open_log

DAY_S = 86_400
NOW = Counts(
    messages=864_000,
    bytes=86_400_000,
    span_s=DAY_S,
    peak_per_s=40.0,
    sessions=100,
    connected=25,
    queues=10,
    queued=50,
    queued_most=20,
)


def test_arithmetic() -> None:
    found = plan(NOW, keep_s=7 * DAY_S, generation_s=DAY_S, growth=1)
    assert found is not None
    assert (found.messages_per_s, found.peak_per_s, found.bytes_per_message) == (10, 40, 100)
    assert found.bytes_per_day == 86_400_000
    assert found.log_bytes == 8 * 86_400_000
    assert found.session_bytes == 25 * CONNECTED_BYTES + 75 * OFFLINE_BYTES
    assert (found.queued_messages, found.queue_messages_most) == (500, 20)
    assert found.queue_bytes == 500 * 100
    assert found.cells == 1
    many = plan(NOW, keep_s=DAY_S, generation_s=DAY_S, growth=20_000, store=7)
    assert many is not None
    assert many.cells == math.ceil(800_000 / CELL_MESSAGES_PER_S)
    assert many.store_bytes == 7, "it is one store, however many devices"
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
        for name in ("a", "b"):
            batch = Batch()
            batch.put_session(SessionRecord(name, 1, START, 600, False, START))
            batch.put_cursor(name, Cursor(offset=START), epoch=1)
            batch.put_subscription(name, Subscription("t/1", qos=1), epoch=1)
            database.submit(batch, 0)
        append(database, ["t/2"] * 1_200, at=START + 120 * SECOND + 1, step=SECOND // 10)
        assert run(command) == ExitCode.OK
        told = json.loads(capsys.readouterr().out)
    finally:
        database.close()
    assert told["messages_per_s"] == pytest.approx(3 * 1_320 / 240, rel=0.01)
    assert told["peak_per_s"] == pytest.approx(30, rel=0.01)
    assert (told["sessions"], told["queued_messages"]) == (6, 3 * 2 * 120)
    assert told["queue_messages_most"] == 120
    assert told["store_bytes"] == 40 * 2**20
    assert told["log_bytes"] > told["bytes_per_day"] > 0
