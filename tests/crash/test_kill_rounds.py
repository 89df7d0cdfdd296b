"""kill -9 at random instants: `make crash ROUNDS=200`, a few rounds in `make test`.

``PERDURE_SEED`` repeats the choices of a run, ``PERDURE_CRASH_ROUNDS`` says how many rounds.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import rounds_s
from tests.support.kill_rounds import KillRounds
from tests.support.process import BrokerProcess, perdure_command
from tests.support.seeds import chosen_seed

ROUNDS = int(os.environ.get("PERDURE_CRASH_ROUNDS") or 5)
SEED = chosen_seed()


@pytest.mark.slow
@pytest.mark.trap(3, 4, 5, 7, 16, 17, 20, 22, 33)
@pytest.mark.timeout(rounds_s(ROUNDS))
async def test_nothing_acknowledged_is_lost_repeated_or_disordered(tmp_path: Path) -> None:
    print(f"\n{ROUNDS} rounds; repeat with: make crash ROUNDS={ROUNDS} SEED={SEED}")
    port = free_port()
    command = perdure_command(tmp_path / "data", port)
    broker = BrokerProcess(command, port=port, log=tmp_path / "broker.log")
    outcome = await KillRounds(broker, seed=SEED, say=print).run(ROUNDS)
    assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
    assert broker.kill_count == ROUNDS
    assert outcome.published > 0
    assert outcome.delivered > 0
    # What peers have seen, and what is on the disk.
    if find_spec("pyarrow") is not None:
        from perdure.pipeline.jobs.audit import audit, text_stamp
        from perdure.pipeline.options import ReadOptions

        found = await asyncio.to_thread(
            audit, ReadOptions(str(tmp_path / "data")), stamp=text_stamp
        )
        assert found.problems == ()
        assert found.stamped > 0
