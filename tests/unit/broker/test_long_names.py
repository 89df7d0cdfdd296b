"""What clients make up as names fills no memory: topics of 60,000 bytes."""

from __future__ import annotations

import gc
import tracemalloc

from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim

PAD = "n" * 60_000
COUNT = 60


def _topics(sim: SimBroker) -> None:
    publisher, reader = Client(sim, "p"), Client(sim, "r")
    reader.connect()
    reader.subscribe("#")
    publisher.connect()
    for number in range(COUNT):
        for _ in range(3):
            publisher.publish(PAD + str(number), b"x", qos=0)
        sim.run_for(1_000)
        reader.messages.clear()
        reader.received.clear()
        reader.answered.clear()
        publisher.received.clear()


def test_long_topics_are_not_kept() -> None:
    sim = make_sim()
    tracemalloc.start()
    try:
        _topics(sim)
        gc.collect()
        held = sum(
            trace.size for trace in tracemalloc.take_snapshot().traces if trace.size > 50_000
        )
    finally:
        tracemalloc.stop()
    assert held < 10 * len(PAD)
