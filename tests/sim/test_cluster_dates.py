"""A replay from a moment has what was taken after it, although the log tells the time in steps."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.storage.ordered.contract import TIME_STEP_US
from tests.unit.broker.harness import Client
from tests.wire.harness import Options
from tests.wire.virtual_cluster import VirtualCluster

LATE_US = TIME_STEP_US * 9 // 10


def test_what_was_taken_in_the_step_of_a_date_is_replayed() -> None:
    cluster = VirtualCluster(Options(), seed=1)
    cluster.start()
    first = cluster.nodes[0]
    first.store.log.shared.time_step_us = TIME_STEP_US  # type: ignore[attr-defined]
    client = Client(first, "c")
    client.connect(expiry_s=600)
    missed = []
    for number in range(40):  # some are taken in the millisecond in which they were sent
        first.run_for((LATE_US - first.clock.now_us()) % TIME_STEP_US)
        begun = datetime.fromtimestamp(first.clock.now_us() / 1_000_000, UTC)
        client.deliver(f"t/{number}")
        client.subscribe(f"$replay/{begun.isoformat()}/t/{number}")
        if client.payloads() != [b"x"]:
            missed.append(number)
    assert missed == []
    cluster.close()
