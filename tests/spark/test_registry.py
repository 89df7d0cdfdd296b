"""What ``pipeline registry`` counts, against a count by hand; both engines agree."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from perdure.cli.exit_codes import ExitCode
from perdure.registry import Channel, DeviceTransport, Registry
from perdure.registry.channel import Keys
from perdure.storage.redis import Command
from tests.support.database_servers import RedisServer

SEED = 11
HOUR_US = 3_600_000_000

pytestmark = [
    pytest.mark.spark,
    pytest.mark.redis,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
]

Held = list[tuple[DeviceTransport, Channel, str]]


async def fill(url: str, now_us: int) -> Held:
    """A registry with everything that can be in one; what is subscribed."""
    chance = random.Random(SEED)
    registry = await Registry.open(url, partitions=16)
    wheres = ["", "", '{"n": {"$gt": 2}}', '{"n": {"$lt": 7}}']
    held = list(
        {
            (
                DeviceTransport(f"d{chance.randrange(300)}", chance.choice(["mqtt", "ws"])),
                Channel("plant", "task", f"u{int(chance.paretovariate(1)) % 40}"),
                chance.choice(wheres),
            )
            for _ in range(3000)
        }
    )
    await registry.subscribe_all(held)
    for number in range(200):
        device = DeviceTransport(f"d{number}", "mqtt")
        at = now_us - number * 5 * HOUR_US
        await registry.connected(device, now_us=at, user_id="ada")
        if number % 2:
            await registry.disconnected(device, now_us=at)
    await registry.set_filter(Channel("plant", "task"), "idle", '{"n": 1}')
    # By others: no channel, an unreadable moment, and a subscription in no place of a worker's.
    astray = Keys(16).subscription_in("app:plant:model:task", "", 99)
    for args in (
        ("SADD", b"nxx:subscription:else", "x"),
        ("HSET", b"nxx:device:odd", "connectedAt", "yesterday", "transport", "ws"),
        ("SADD", astray, "d0|mqtt"),
    ):
        await registry.client.call(Command(args, args[1]))
    await registry.close()
    return held


def counted(url: str, home: Path, *options: str) -> dict[str, Any]:
    """What the command says."""

    async def run() -> bytes:
        command = ("pipeline", "registry", "--url", url, "--partitions", "16", "--top", "50")
        with (home / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perdure", *command, "--output", "json", *options),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        told, _ = await process.communicate()
        assert process.returncode == ExitCode.OK, (home / "log").read_text()
        return told

    found: dict[str, Any] = json.loads(asyncio.run(run()))
    return found


def test_counts(tmp_path: Path) -> None:
    import time

    now_us = time.time_ns() // 1000
    with RedisServer() as redis:
        held = asyncio.run(fill(redis.url, now_us))
        report = tmp_path / "registry.html"
        here = counted(redis.url, tmp_path, "--html", str(report))
        spark = counted(redis.url, tmp_path, "--master", "local[2]", "--memory", "768m")
    assert here == spark
    by_channel = Counter(channel.key for _, channel, _ in held)
    by_channel["app:plant:model:task"] += 1
    filtered = sum(where != "" for *_, where in held)
    pairs = {(channel, where) for _, channel, where in held if where}
    unknown = {device.device_id for device, *_ in held if int(device.device_id[1:]) >= 200}
    subscribed = {device.device_id for device, *_ in held} | {"d0"}
    assert here["totals"] == {
        "channels": len(by_channel),
        "subscriptions": len(held) + 1,
        "filtered": filtered,
        "subscribed_devices": len(subscribed),
        "filters": len(pairs) + 1,
        "devices": 201,
        "connected": 101,  # half of ours, and the one of which nobody has said otherwise
        "unknown_devices": len(unknown),
        "misplaced": 1,
    }
    assert {row["channel"]: row["subscriptions"] for row in here["channels"]} == by_channel
    assert here["channels"][0]["subscriptions"] == max(by_channel.values())
    assert sum(row["channels"] for row in here["sizes"]) == len(by_channel)
    assert [row["filter_id"] for row in here["unused"]] == ["idle"]
    assert sum(row["subscriptions"] for row in here["filters"]) <= filtered
    seen = {row["seen"]: row["devices"] for row in here["activity"]}
    assert seen == {
        "connected": 101, "in the last day": 2, "in the last week": 15,
        "in the last 30 days": 55, "longer ago": 28,
    }  # fmt: skip
    keys = Keys(16)
    places = Counter(keys.partition(channel.key) for _, channel, _ in held) + Counter([99])
    assert {row["partition_id"]: row["subscriptions"] for row in here["partitions"]} == places
    assert here["balance"]["most"] == max(places.values())
    assert {row["transport"] for row in here["transports"]} == {"mqtt", "ws"}
    page = report.read_text(encoding="utf-8")
    assert "Filters that nobody uses" in page
    assert "$gt" in page


def test_a_registry_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from perdure.bench.ports import free_port
    from perdure.cli.main import run

    code = run(["pipeline", "registry", "--url", f"redis://127.0.0.1:{free_port()}"])
    assert code == ExitCode.TEMPORARY
    assert "Redis" in capsys.readouterr().err
