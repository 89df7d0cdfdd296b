"""HTTP processes are started, replaced when they die, and stopped with the broker."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config.schema import HttpConfig
from perdure.errors import AddressUnavailable, ConfigError, StartTimeout
from perdure.observe.metrics import Metrics
from perdure.server import http_part
from perdure.server.http_part import HttpPart
from tests.support.bounds import HANG_S
from tests.unit.pipeline.logs import open_log

ECHO = """
import json, os, sys
settings = json.loads(sys.stdin.readline())
print(json.dumps({"event": "http.ready"}), flush=True)
print("no event", flush=True)
print(json.dumps({"event": "test.told", "pid": os.getpid(), "settings": settings}), flush=True)
for line in sys.stdin:
    if line == "stop\\n":
        break
"""
CONFIG = HttpConfig(bind="127.0.0.1:0")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """What is logged, by event."""
    found: dict[str, list[dict[str, Any]]] = {}

    class Log:
        def say(self, event: str, **fields: Any) -> None:
            found.setdefault(event, []).append(fields)

        info = warning = error = say

    monkeypatch.setattr(http_part, "log", Log())
    return found


def part(
    data: Path, config: HttpConfig = CONFIG, program: str = ECHO, metrics: Metrics | None = None
) -> HttpPart:
    data.mkdir(exist_ok=True)
    command = (sys.executable, "-c", program)
    return HttpPart(config, data, version="1.2.3", metrics=metrics or Metrics(), command=command)


async def started(made: HttpPart) -> None:
    """It has started, and so have its processes."""
    await made.start()
    await made.settle()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_processes_are_told_what_they_need(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]]
) -> None:
    made = part(tmp_path / "db", HttpConfig(bind="127.0.0.1:0", processes=2, reads_max=3))
    await started(made)
    await until(lambda: len(told.get("test.told", ())) == 2)
    settings = told["test.told"][0]["settings"]
    assert settings["data"] == str(tmp_path / "db")
    assert settings["token_file"] == str(tmp_path / "db" / "http.token")
    assert (settings["reads_max"], settings["version"]) == (3, "1.2.3")
    # One port for both, and nobody else has it.
    assert told["http.started"] == [{"scheme": "http", "port": made.port, "processes": 2}]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", made.port))
    port = made.port
    await made.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert "http.process_died" not in told


async def test_one_that_dies_is_replaced(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]]
) -> None:
    made = part(tmp_path / "db")
    await started(made)
    await until(lambda: told.get("test.told"))
    os.kill(told["test.told"][0]["pid"], signal.SIGKILL)
    await until(lambda: len(told["test.told"]) == 2)
    assert told["http.process_died"][0]["code"] == -signal.SIGKILL
    await made.stop()


async def test_one_that_does_not_stop_is_killed(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_part, "STOP_TIMEOUT_S", 0.05)
    deaf = ECHO.replace('if line == "stop\\n":\n        break', "pass")
    made = part(tmp_path / "db", program=f"{deaf}\nimport time\ntime.sleep(60)")
    await started(made)
    await made.stop()
    assert len(told["http.process_killed"]) == 1


@pytest.mark.parametrize(
    ("program", "timeout_s"),
    [("raise SystemExit(3)", 60.0), ("import time; time.sleep(60)", 0.1)],
    ids=["ends", "hangs"],
)
async def test_one_that_does_not_start_ends_the_start(
    tmp_path: Path,
    told: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    timeout_s: float,
) -> None:
    monkeypatch.setattr(http_part, "READY_TIMEOUT_S", timeout_s)
    monkeypatch.setattr(http_part, "STOP_TIMEOUT_S", 0.05)
    made = part(tmp_path / "db", program=program)
    with pytest.raises(
        (ConfigError, StartTimeout), match=r"ended at its start \(3\)|not start within"
    ):
        await started(made)
    await made.stop()
    with pytest.raises(IndexError):
        _ = made.port


async def test_what_makes_it_refuse_to_start(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(http_part, "BIND_TIMEOUT_S", 0.1)
        busy = HttpConfig(bind=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(AddressUnavailable, match="cannot listen"):
            await part(tmp_path / "db", busy).start()
    for config, problem in (
        (HttpConfig(bind="127.0.0.1:0", token_file="nowhere"), "cannot read the tokens"),
        (
            HttpConfig(bind="127.0.0.1:0", certificate="no.pem", private_key="no.pem"),
            "there is no file no.pem",
        ),
    ):
        with pytest.raises(ConfigError, match=problem):
            await part(tmp_path / "db", config).start()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        await part(tmp_path / "db").start()
    assert caught.value.hint == "pip install 'perdure[http]'"


async def test_a_port_that_the_last_broker_lets_go_of(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]]
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    made = part(tmp_path / "db", HttpConfig(bind=f"127.0.0.1:{taken.getsockname()[1]}"))
    starting = asyncio.create_task(started(made))
    await asyncio.sleep(0.05)
    assert not starting.done()
    taken.close()
    await starting
    await made.stop()


async def test_clear_text_for_other_machines_is_warned_of(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]]
) -> None:
    made = part(tmp_path / "db", HttpConfig(bind="0.0.0.0:0"))
    await started(made)
    assert told["http.no_tls"][0]["bind"] == "0.0.0.0:0"
    await made.stop()


async def test_the_real_process(tmp_path: Path, told: dict[str, list[dict[str, Any]]]) -> None:
    pytest.importorskip("uvicorn")
    open_log(tmp_path / "db").close()
    made = HttpPart(CONFIG, tmp_path / "db", version="1.2.3", metrics=Metrics())
    await started(made)
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["version"] == "1.2.3"
    await made.stop()


COUNTS = """
import json, os, sys
sys.stdin.readline()
buckets = [0] * 29
buckets[3] = 2
told = {
    "requests": [["/livez", "GET", "200", 2]],
    "response_bytes": [["/livez", 15]],
    "seconds": [["probe", buckets, 12]],
    "in_flight": 1,
}
print(json.dumps({"event": "http.traffic", "requests": "nonsense"}), flush=True)
print(json.dumps({"event": "http.traffic", **told}), flush=True)
print(json.dumps({"event": "http.ready"}), flush=True)
sys.stdin.readline()
"""


async def test_what_processes_count_is_in_the_metrics(
    tmp_path: Path, told: dict[str, list[dict[str, Any]]]
) -> None:
    metrics = Metrics()
    made = part(tmp_path / "db", HttpConfig(bind="127.0.0.1:0", processes=2), COUNTS, metrics)
    await started(made)
    assert metrics.http_requests == {("/livez", "GET", "200"): 4}
    assert metrics.http_response_bytes == {("/livez",): 30}
    assert (metrics.http_request_seconds_probe.count, metrics.http_request_seconds_probe.sum) == (
        4,
        24,
    )
    assert metrics.http_requests_in_flight == 2
    await made.stop()
    assert metrics.http_requests_in_flight == 0
    assert "http.traffic" not in told


async def test_a_proxy_that_is_no_address_is_an_error_of_the_start(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, proxies=("10.0.0.0/8", "proxy.example"))
    with pytest.raises(ConfigError) as found:
        await part(tmp_path / "db", config).start()
    assert found.value.path == "http.proxies"
