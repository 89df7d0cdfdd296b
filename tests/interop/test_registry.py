"""The registry between us and a worker in JavaScript with the official Redis client.

The client is installed when the test runs, into a temporary folder.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.registry import Channel, DeviceTransport, Registry
from tests import servers
from tests.support.bounds import HANG_S
from tests.support.needs import missing

pytestmark = pytest.mark.redis
PROGRAM = Path(__file__).parent / "registry"
HIGH = {"priority": {"$eq": "high"}}
TASKS = Channel("myapp", "task")
CHANNEL = {"appId": "myapp", "model": "task"}
PARTITIONS = 1024


class Worker:
    """The worker: a line asks, a line answers."""

    def __init__(self, process: subprocess.Popen[str], prefix: str) -> None:
        self._process = process
        self.prefix = prefix

    def ask(self, action: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"action": action, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the worker has ended"
        return json.loads(line)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("node and npm")
    folder = tmp_path_factory.mktemp("nexxus")
    shutil.copytree(PROGRAM, folder, dirs_exist_ok=True)
    installed = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--silent"],
        cwd=folder,
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    if installed.returncode:
        missing("the npm package redis")
    prefix = f"t{secrets.token_hex(4)}:"
    command = [node, "nexxus.mjs", servers.redis().url, prefix, str(PARTITIONS)]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Worker(process, prefix)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(HANG_S) == 0


def with_registry(worker: Worker, work: Any) -> Any:
    async def run() -> Any:
        registry = await Registry.open(
            servers.redis().url, partitions=PARTITIONS, prefix=worker.prefix
        )
        try:
            return await work(registry)
        finally:
            await registry.close()

    return asyncio.run(run())


def test_what_it_writes_we_read(worker: Worker) -> None:
    worker.ask("subscribe", device="d1|websockets-transport", channel=CHANNEL)
    worker.ask("subscribe", device="d2|mqtt", channel=CHANNEL, filterId="abc123", filter=HIGH)
    one = {**CHANNEL, "userId": "user123", "modelId": "task-456"}
    worker.ask("subscribe", device="d3|mqtt", channel=one)
    fields = {
        "userId": "user-456",
        "transport": "websockets-transport",
        "userAgent": "Mozilla/5.0...",
        "connectedAt": "2026-01-26T10:30:00Z",
    }
    worker.ask("putDevice", deviceId="d1", fields=fields)

    async def read(registry: Registry) -> Any:
        change = Channel("myapp", "task", "user123", "task-456")
        return (
            await registry.wanting(change, {"priority": "high"}),
            await registry.wanting(TASKS, {"priority": "low"}),
            await registry.device("d1"),
        )

    all_of_them, few, device = with_registry(worker, read)
    assert [str(each) for each in all_of_them.devices] == [
        "d1|websockets-transport",
        "d2|mqtt",
        "d3|mqtt",
    ]
    assert [each.device_id for each in few.devices] == ["d1"]
    assert (device.user_id, device.connected_at) == ("user-456", "2026-01-26T10:30:00Z")


def test_what_we_write_it_reads(worker: Worker) -> None:
    ours = Channel("other", "task", "ada")
    channel = {"appId": "other", "model": "task", "userId": "ada"}

    async def write(registry: Registry) -> str:
        pump = DeviceTransport("pump", "mqtt")
        await registry.connected(
            pump, now_us=1_769_423_400_000_000, user_id="ada", user_agent="paho", worker="n1"
        )
        await registry.subscribe(pump, ours)
        return await registry.subscribe(pump, ours, where=json.dumps(HIGH))

    filter_id = with_registry(worker, write)
    assert worker.ask("subscribers", channel=channel) == ["pump|mqtt"]
    assert worker.ask("subscribers", channel=channel, filterId=filter_id) == ["pump|mqtt"]
    filters = worker.ask("filters", channel=channel)
    assert {name: json.loads(text) for name, text in filters.items()} == {filter_id: HIGH}
    device = worker.ask("device", deviceId="pump")
    assert {name: device[name] for name in ("userId", "transport", "userAgent", "connectedAt")} == {
        "userId": "ada",
        "transport": "mqtt",
        "userAgent": "paho",
        "connectedAt": "2026-01-26T10:30:00.000Z",
    }
