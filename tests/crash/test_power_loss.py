"""Power cuts: kill -9 at random instants, and what the disk was not made to keep is gone.

Twice, by means that share nothing: an engine that writes down what each sync covered, and a file
system of its own whose pages in memory are thrown away. A third test watches the system calls.

``make faults ROUNDS=50`` runs more of them; ``PERDURE_SEED`` repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S, rounds_s
from tests.support.delivery import Ledger
from tests.support.disk import Disk
from tests.support.disk_broker import disk_command
from tests.support.kill_rounds import KillRounds
from tests.support.peer_connection import PeerConnection
from tests.support.peers import Publisher, Subscriber
from tests.support.process import BrokerProcess, perdure_command
from tests.support.seeds import chosen_seed
from tests.support.volume import PowerVolume, VolumesUnavailable

ROUNDS = int(os.environ.get("PERDURE_FAULT_ROUNDS") or 2)
SEED = chosen_seed()
SLOW_SYNC_S = 0.03
"""With a fast disk hardly anything would be unsynced when the power goes."""


@pytest.mark.slow
@pytest.mark.timeout(rounds_s(ROUNDS))
async def test_fsync_loses_nothing(tmp_path: Path) -> None:
    print(f"\n{ROUNDS} rounds, seed {SEED}")
    chance = random.Random(SEED)
    data, port = tmp_path / "data", free_port()
    disk = Disk(tmp_path / "disk", data)
    losses: list[int] = []

    def lose_power() -> None:
        losses.append(disk.lose_power(chance))
        disk.slow_down(chance.choice((0, SLOW_SYNC_S)))

    disk.slow_down(SLOW_SYNC_S)
    broker = BrokerProcess(
        disk_command(disk.path, data, port),
        port=port,
        log=tmp_path / "broker.log",
        on_killed=lose_power,
    )
    outcome = await KillRounds(broker, seed=SEED, say=print).run(ROUNDS)
    print(f"bytes lost: {losses}")
    assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
    assert len(losses) == ROUNDS
    assert sum(losses) > 0
    assert outcome.published > 0
    assert outcome.delivered > 0


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what other processes do."""
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


async def publish_until_killed(
    broker: BrokerProcess, client_id: str, ledger: Ledger, *, seconds: float
) -> int:
    """A steady stream on one topic, and kill -9 in its middle; returns when, in microseconds."""
    publisher = Publisher(client_id, protocol=5, ledger=ledger, clock=now_us)
    connection = PeerConnection(publisher, broker.port)
    await until(lambda: publisher.is_connected, "no CONNACK")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(publisher.under_way) < 10:
            connection.write(publisher.publish("t", qos=1))
        await asyncio.sleep(0.002)
    connection.is_wanted = False
    killed_at_us = now_us()
    await broker.kill()
    await connection.close()
    assert publisher.breaches == []
    return killed_at_us


def now_us() -> int:
    return time.time_ns() // 1000


@pytest.mark.slow
async def test_os_loses_what_its_documentation_says(tmp_path: Path) -> None:
    """docs/howto/limits.md: nothing to kill -9, about the last second to a power cut."""
    data, port = tmp_path / "data", free_port()
    disk = Disk(tmp_path / "disk", data)
    # The last sync before the kill is some time ago, so that there is something to lose.
    disk.slow_down(0.2)
    broker = BrokerProcess(
        disk_command(disk.path, data, port, "--set", "storage.durability=os"),
        port=port,
        log=tmp_path / "broker.log",
    )
    ledger = Ledger()
    subscriber = Subscriber("sub", [("t", 2)], protocol=5, chance=random.Random(1))
    try:
        await broker.start()
        connection = PeerConnection(subscriber, port)
        await until(lambda: subscriber.is_subscribed, "no SUBACK")
        connection.is_wanted = False
        connection.cut()

        await publish_until_killed(broker, "first", ledger, seconds=0.5)
        await broker.start()
        killed_at_us = await publish_until_killed(broker, "second", ledger, seconds=3)
        assert disk.lose_power() > 0
        await broker.start()
        connection.is_wanted = True
        marker = Publisher("marker", protocol=5, ledger=Ledger(), clock=now_us)
        last = PeerConnection(marker, port)
        await until(lambda: marker.is_connected, "no CONNACK")
        last.write(marker.publish("t", qos=1))
        await until(lambda: ("marker", "t") in subscriber.receipts.arrivals, "no delivery")
        await connection.close()
        await last.close()
    finally:
        await broker.stop()

    assert subscriber.breaches == []
    arrivals = subscriber.receipts.arrivals
    first = [number for number, _ in arrivals["first", "t"]]
    acknowledged = ledger.flows["first", "t"].acknowledged_at_us
    assert [n for n, at_us in enumerate(acknowledged, 1) if at_us and n not in first] == []
    second = [number for number, _ in arrivals["second", "t"]]
    assert second == list(range(1, len(second) + 1)), "a hole, a repeat or another order"
    acknowledged = ledger.flows["second", "t"].acknowledged_at_us
    lost = [at_us for at_us in acknowledged[len(second) :] if at_us]
    assert lost, "the power cut took nothing: what does this test prove?"
    # A second between syncs, the time that this disk takes for one, and a margin.
    assert killed_at_us - lost[0] < 1_000_000 + 200_000 + 500_000


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[PowerVolume]:
    """A file system that can lose power."""
    try:
        volume = PowerVolume(tmp_path)
    except VolumesUnavailable as error:
        pytest.skip(error.message)
    yield volume
    volume.close()


@pytest.mark.slow
@pytest.mark.timeout(rounds_s(ROUNDS))
async def test_fsync_loses_nothing_on_a_file_system_that_forgets(
    tmp_path: Path, volume: PowerVolume
) -> None:
    print(f"\n{ROUNDS} rounds, seed {SEED}")
    port = free_port()
    # Generations come and go, so that tables are made, flushed and dropped between power cuts.
    settings = ("generation_time_s=1", "time_s=2", "check_interval_s=1")
    options = [part for setting in settings for part in ("--set", f"retention.{setting}")]
    broker = BrokerProcess(
        perdure_command(volume.path / "data", port, *options),
        port=port,
        log=tmp_path / "broker.log",
        on_killed=volume.lose_power,
    )
    outcome = await KillRounds(broker, seed=SEED, say=print).run(ROUNDS)
    assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
    assert broker.kill_count == ROUNDS
    assert outcome.published > 0
    assert outcome.delivered > 0


@pytest.mark.slow
async def test_the_file_system_does_forget(volume: PowerVolume) -> None:
    """The test above would pass on a file system that keeps everything."""
    kept, lost = volume.path / "kept", volume.path / "lost"
    with kept.open("wb") as file:
        file.write(b"kept")
        file.flush()
        os.fsync(file.fileno())
    with kept.open("ab") as file:
        file.write(b" and more")
    lost.write_bytes(b"lost")
    volume.lose_power()
    assert kept.read_bytes() == b"kept"
    assert not lost.exists()
