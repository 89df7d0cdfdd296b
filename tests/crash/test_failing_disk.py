"""Disks that fail under a real broker: it refuses what it cannot keep, and recovers by itself.

``PERDURE_SEED`` and ``PERDURE_CRASH_ROUNDS`` as for ``test_kill_rounds``.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from perdure.testing.disk import Disk
from perdure.testing.disk_broker import disk_command
from perdure.testing.fault_rounds import FaultRounds
from perdure.testing.process import BrokerProcess, free_port

ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 3)
SEED = os.environ.get("PERDURE_SEED") or str(random.SystemRandom().randrange(10**9))


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_every_fault_is_survived(tmp_path: Path) -> None:
    print(f"\n{ROUNDS} rounds, seed {SEED}")
    data, port = tmp_path / "data", free_port()
    disk = Disk(tmp_path / "disk", data)
    settings = ("generation_time_s=1", "time_s=2", "check_interval_s=1")
    options = [part for setting in settings for part in ("--set", f"retention.{setting}")]
    log = tmp_path / "broker.log"
    broker = BrokerProcess(disk_command(disk.path, data, port, *options), port=port, log=log)
    run = FaultRounds(broker, disk, seed=SEED, say=print)
    outcome = await run.run(ROUNDS)
    assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
    assert run.fault_count >= ROUNDS
    assert outcome.published > 0
    assert outcome.delivered > 0
    said = log.read_text()
    assert "storage.recovered" in said
    assert "Traceback" not in said
