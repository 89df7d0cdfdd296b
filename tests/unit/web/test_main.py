"""A process of its own: it lives as long as its standard input."""

from __future__ import annotations

import http.client
import os
import signal
from pathlib import Path

import pytest

from perdure.pipeline.protocol import API, LOG_PATH
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import HANG_S
from tests.unit.web.asgi import TOKEN
from tests.unit.web.child import WebProcess

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow


def get(process: WebProcess, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=HANG_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


def test_it_serves_through_signals_and_ends_with_its_parent(
    database: RocksDatabase, tmp_path: Path
) -> None:
    with WebProcess(tmp_path / "db") as process:
        assert get(process, f"{API}/version")[0] == 200
        assert process.niceness() == min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)
        assert process.policy() == os.SCHED_BATCH
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.signal(number)
        assert get(process, LOG_PATH)[0] == 200
        # There is no broker to ask.
        assert get(process, f"{API}/livez")[0] == 503
        assert process.forsake() == 0


def test_it_stops_when_it_is_asked_to(database: RocksDatabase, tmp_path: Path) -> None:
    with WebProcess(tmp_path / "db") as process:
        assert get(process, LOG_PATH)[0] == 200
        process.say(b"stop")
        assert process.wait() == 0


def test_it_tells_the_broker_whom_it_refused(database: RocksDatabase, tmp_path: Path) -> None:
    with WebProcess(tmp_path / "db") as process:
        connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=HANG_S)
        connection.request("GET", LOG_PATH)
        assert connection.getresponse().status == 401
        connection.close()
        refused = counted = None
        while refused is None or counted is None:
            (told,) = process.events(1)
            if told["event"] == "http.refused":
                refused = told
            elif told["requests"]:
                counted = told["requests"]
        assert (refused["peer"], refused["path"], refused["status"]) == ("127.0.0.1", LOG_PATH, 401)
        assert counted == [["/storage/databases/log", "GET", "401", 1]]


def test_what_was_counted_last_is_told_at_the_end(database: RocksDatabase, tmp_path: Path) -> None:
    with WebProcess(tmp_path / "db") as process:
        for _ in range(3):
            assert get(process, LOG_PATH)[0] == 200
        process.say(b"stop")
        assert process.wait() == 0
        told = [one for one in process.rest() if one["event"] == "http.traffic"]
        counts = [count for one in told for *_, count in one["requests"]]
        assert sum(counts) == 3
        assert told[-1]["in_flight"] == 0
