"""A disk that fills up under a real broker, and has room again later; a budget for the disk."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.crash.load import Load, until
from tests.support.bounds import HANG_S
from tests.support.delivery import audit
from tests.support.process import BrokerProcess, perdure_command
from tests.support.volume import MEBIBYTE, SmallVolume, VolumesUnavailable

BIG = 64_000
"""Payloads that fill a disk soon."""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[SmallVolume]:
    """A file system that is soon full."""
    try:
        volume = SmallVolume(tmp_path, size_bytes=48 * MEBIBYTE)
    except VolumesUnavailable as error:
        pytest.skip(error.message)
    yield volume
    volume.close()


def events(log: Path, name: str) -> list[dict[str, object]]:
    """What the broker said of one kind."""
    found = []
    for line in log.read_text().splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            if event["event"] == name:
                found.append(event)
    return found


def refusals(load: Load, client_id: str) -> int:
    """Messages that a publisher was told are not taken."""
    return sum(
        flow.acknowledged_at_us.count(0)
        for (name, _), flow in load.ledger.flows.items()
        if name == client_id
    )


@pytest.mark.slow
@pytest.mark.trap(35)
async def test_a_full_disk_refuses_and_recovers(tmp_path: Path, volume: SmallVolume) -> None:
    port, log = free_port(), tmp_path / "broker.log"
    broker = BrokerProcess(perdure_command(volume.path / "data", port), port=port, log=log)
    load = Load(port, payload_size=4096)
    old, new = load.publishers
    try:
        await broker.start()
        await load.start()
        await load.leave()
        for count in (1, 2):
            volume.load(volume.free_bytes - 4 * MEBIBYTE)

            def refused(count: int = count) -> bool:
                return (
                    len(events(log, "storage.failed")) >= count
                    and not old.is_connected
                    and refusals(load, new.client_id) >= count
                )

            await load.publish_until(refused, "storage.failed, 3.1.1 closed and 5.0 refused")
            sent = load.ledger.sent_count
            await asyncio.sleep(1.5)  # longer than the broker waits before it asks the disk again
            broker.check()
            assert len(events(log, "storage.recovered")) == count - 1
            volume.unload()

            def recovered(count: int = count) -> bool:
                return len(events(log, "storage.recovered")) >= count

            await until(recovered, "storage.recovered")
            await load.publish(100)
            assert load.ledger.sent_count > sent
        await load.read_all()
    finally:
        await load.close()
        code = await broker.stop()
    load.check()
    # 5.0 is told, so it does not keep what was refused; 3.1.1 keeps it and sends it again.
    assert refusals(load, old.client_id) == 0
    assert {event["code"] for event in events(log, "storage.failed")} == {"storage_full"}
    assert code == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
async def test_a_start_on_a_full_disk_is_refused_and_leaves_no_harm(
    tmp_path: Path, volume: SmallVolume
) -> None:
    data, port, log = volume.path / "data", free_port(), tmp_path / "broker.log"
    command = perdure_command(data, port)

    def refused_start() -> str:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert process.returncode == 75, process.stderr
        assert "Traceback" not in process.stderr
        return process.stderr.splitlines()[-2]

    for left in (0, 8192, 65536):
        volume.unload()
        volume.load(volume.free_bytes - left)
        assert refused_start().startswith("perdure: no space left for ")
    # A half-made database does not stand in the way of a whole one.
    volume.unload()
    broker = BrokerProcess(command, port=port, log=log)
    load = Load(port)
    try:
        await broker.start()
        await load.start()
        await load.leave()
        await load.publish(150)
        await load.finish()
        await broker.kill()
        volume.load(volume.free_bytes)
        assert refused_start().startswith("perdure: no space left for ")
        volume.unload()
        await broker.start()
        await load.read_all()
    finally:
        await load.close()
        await broker.stop()
    load.check()


def budget(data: Path, port: int, size: str, policy: str, *more: str) -> list[str]:
    """The command of a broker with a disk budget that looks at it often."""
    settings = (
        f"disk_bytes_max={size}",
        f"disk_policy={policy}",
        "generation_bytes=8MiB",
        "check_interval_s=1",
        *more,
    )
    options = [part for setting in settings for part in ("--set", f"retention.{setting}")]
    return perdure_command(data, port, *options)


@pytest.mark.slow
async def test_a_budget_refuses_until_the_log_is_smaller(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "broker.log"
    command = budget(tmp_path / "data", port, "12MiB", "refuse", "time_s=4")
    broker = BrokerProcess(command, port=port, log=log)
    load = Load(port, payload_size=BIG)
    old = load.publishers[0]
    try:
        await broker.start()
        await load.start()
        await load.publish_until(
            lambda: bool(events(log, "disk.full")) and not old.is_connected,
            "disk.full",
            pause_s=0.05,
        )
        # Its age lets the log become smaller; what was read of it needs no room elsewhere.
        await until(lambda: bool(events(log, "disk.recovered")), "disk.recovered")
        await load.publish(50)
        await load.read_all()
    finally:
        await load.close()
        await broker.stop()
    load.check()
    assert events(log, "storage.failed") == []


@pytest.mark.slow
async def test_a_budget_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "broker.log"
    command = budget(tmp_path / "data", port, "80MiB", "drop_oldest")
    broker = BrokerProcess(command, port=port, log=log)
    load = Load(port, payload_size=BIG, subscriptions=[("t/#", 2)])
    (subscriber,) = load.subscribers
    try:
        await broker.start()
        await load.start()
        await load.leave()
        await load.publish_until(
            lambda: len(events(log, "generation.dropped")) >= 2, "generation.dropped", pause_s=0.03
        )
        await load.finish()
        dropped = len(events(log, "generation.dropped"))
        load.come_back()
        last = {key: len(flow.qos) for key, flow in load.ledger.flows.items()}
        arrivals = subscriber.receipts.arrivals
        await until(
            lambda: all(arrivals[key] and arrivals[key][-1][0] == n for key, n in last.items()),
            "the newest messages",
        )
        dropped = len(events(log, "generation.dropped")) - dropped
    finally:
        await load.close()
        await broker.stop()
    assert subscriber.breaches == []
    for key, count in last.items():
        # A hole at the beginning, and one for each generation that went while it was read.
        numbers = [number for number, _ in arrivals[key]]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == count
        assert sum(b != a + 1 for a, b in pairwise(numbers)) <= dropped
    verdict = audit(load.ledger, subscriber.receipts, strict_order=True)
    assert verdict.breaches == verdict.lost > 0
    counted = [event["lost"] for event in events(log, "generation.dropped")]
    assert sum(lost for lost in counted if isinstance(lost, int)) == verdict.lost
    shutil.rmtree(tmp_path / "data")
