"""Health is told although more connections hang than may be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from perdure.pipeline.protocol import API, LOG_PATH
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import HANG_S
from tests.unit.web.child import WebProcess
from tests.unit.web.test_main import get

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

HALVES = (b"", b"GET / HTTP/1.1\r\nHos", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")


def test_hanging_connections_make_room(database: RocksDatabase, tmp_path: Path) -> None:
    with WebProcess(tmp_path / "db", connections_max=8) as process:
        hanging = []
        for number in range(40):
            opened = socket.create_connection(("127.0.0.1", process.port), timeout=HANG_S)
            opened.sendall(HALVES[number % 3])
            hanging.append(opened)
        assert get(process, f"{API}/version")[0] == 200
        assert get(process, LOG_PATH)[0] == 200
        process.say(b"stop")
        assert process.wait() == 0
        told = [one for one in process.rest() if one["event"] == "http.traffic"]
        counts = dict(one for each in told for one in each["dropped"])
        assert counts["evicted"] >= 30
        for opened in hanging:
            opened.close()
