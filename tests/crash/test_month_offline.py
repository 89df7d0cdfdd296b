"""A month offline, in seconds: retention drops what a session has still to get, and it gets it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.bench.ports import free_port
from tests.crash.load import Load, until
from tests.support.process import BrokerProcess, perdure_command

SUBSCRIPTIONS = (
    ("t/3", 1),
    ("t/3", 2),
    ("t/+", 1),
    ("t/#", 2),
    ("$share/group/t/#", 1),
    ("$share/other/t/+", 2),
)


@pytest.mark.slow
@pytest.mark.trap(26)
async def test_every_message_outlives_its_generation(tmp_path: Path) -> None:
    """Sessions that were cut while they acknowledged out of order stay away for several lives of
    the log, and the broker is killed meanwhile. Order and packet identifiers hold."""
    port, log = free_port(), tmp_path / "broker.log"
    settings = ("generation_time_s=1", "time_s=2", "check_interval_s=1")
    options = [part for setting in settings for part in ("--set", f"retention.{setting}")]
    command = perdure_command(tmp_path / "data", port, *options)
    broker = BrokerProcess(command, port=port, log=log)
    load = Load(port, subscriptions=SUBSCRIPTIONS)
    for subscriber in load.subscribers:
        subscriber.hold = 0.5
        subscriber.window = 30
    try:
        await broker.start()
        await load.start()
        await load.publish(200)
        for reader in load.readers:
            # Some in chance order, and the rest of them never.
            reader.write(reader.peer.release_held())
        await load.publish(100)
        await load.leave()
        for _ in range(2):
            for _ in range(3):
                await load.publish(60)
                await asyncio.sleep(0.7)
            await load.finish()
            await broker.kill()
            await broker.start()
        await until(lambda: len(_dropped(log)) >= 3, "generations are dropped")
        await load.read_all()
    finally:
        await load.close()
        await broker.stop()
    load.check()
    assert any(s.receipts.count > len(set(_names(s.receipts.arrivals))) for s in load.subscribers)
    assert sum(event["carried"] for event in _dropped(log)) > 500


def _dropped(log: Path) -> list[dict[str, Any]]:
    """What the broker has said of generations that went."""
    return [json.loads(line) for line in log.read_text().splitlines() if "n.dropped" in line]


def _names(arrivals: dict[tuple[str, str], list[tuple[int, int]]]) -> list[tuple[str, str, int]]:
    return [(*key, number) for key, found in arrivals.items() for number, _ in found]
