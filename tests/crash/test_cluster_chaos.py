"""A cluster of processes under faults of every kind: ``PERDURE_CHAOS_ROUNDS`` says how many.

``PERDURE_SEED`` repeats the choices of a run, ``PERDURE_CHAOS_FAULTS`` names the faults that may
come (with commas between), ``PERDURE_CHAOS_DIR`` is where data and output stay.
"""

from __future__ import annotations

import asyncio
import os
import random
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cluster_processes import ClusterProcesses
from tests.support.seeds import chosen_seed
from tests.support.wandering_rounds import ALL_FAULTS, WanderingRounds

if TYPE_CHECKING:
    from perdure.pipeline.jobs.audit import Problem

ROUNDS = int(os.environ.get("PERDURE_CHAOS_ROUNDS") or 2)
CHOSEN = os.environ.get("PERDURE_CHAOS_FAULTS")
SEED = chosen_seed()


def is_of_wills(problem: Problem) -> bool:
    """Nothing orders wills of different connections that become due on two nodes."""
    return problem.kind == "order" and problem.subject.startswith("wills/")


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * ROUNDS)
async def test_a_cluster_keeps_its_promises_through_faults(tmp_path: Path) -> None:
    print(f"\n{ROUNDS} rounds; repeat with: PERDURE_CHAOS_ROUNDS={ROUNDS} PERDURE_SEED={SEED}")
    directory = Path(os.environ.get("PERDURE_CHAOS_DIR") or tmp_path)
    directory.mkdir(parents=True, exist_ok=True)
    cluster = ClusterProcesses(
        directory, random.Random(SEED), ["storage.outage_max=10s"], has_http=True
    )
    try:
        await cluster.open()
        faults = CHOSEN.split(",") if CHOSEN else ALL_FAULTS
        rounds = WanderingRounds(cluster, seed=SEED, say=print, faults=faults)
        outcome = await rounds.run(ROUNDS)
    finally:
        await cluster.close()
    for fault, times_s in sorted(rounds.recoveries_s.items()):
        print(f"{fault}: messages taken after {max(times_s):.1f} s at most ({len(times_s)})")
    assert not outcome.failures, "\n".join([f"seed {SEED}", *outcome.failures])
    assert outcome.published > 0
    assert outcome.delivered > 0
    assert rounds.verified > 0
    # What clients have seen, and what each node has on its disk.
    if find_spec("pyarrow") is not None:
        from perdure.pipeline.jobs.audit import LedgerLine, audit, text_stamp
        from perdure.pipeline.options import ReadOptions

        ledger = [LedgerLine(*line) for line in rounds.acknowledged]
        for node in cluster.nodes:
            options = ReadOptions(str(node.data))
            found = await asyncio.to_thread(audit, options, stamp=text_stamp, ledger=ledger)
            problems = [each for each in found.problems if not is_of_wills(each)]
            assert problems == [], node.name
            assert found.acknowledged == len(ledger)
