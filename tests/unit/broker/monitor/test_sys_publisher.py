"""``$SYS`` topics cost a turn only where somebody listens."""

from __future__ import annotations

from perdure.config.schema import Config, SysConfig
from tests.unit.broker.harness import Client, make_sim

INTERVAL_US = 1_000_000


def test_values_that_nobody_wants_end_no_turn() -> None:
    sim = make_sim(config=Config(sys=SysConfig(interval_s=1)))
    sim.run_for(INTERVAL_US)
    pipeline = sim.live.services.pipeline
    before = pipeline.number
    sim.run_for(10 * INTERVAL_US)
    assert pipeline.number == before
    # They are there for who comes, and come from then on.
    listener = Client(sim, "listener")
    listener.connect(expiry_s=0, clean=True)
    listener.subscribe("$SYS/broker/uptime", qos=0)
    assert len(listener.messages) == 1
    sim.run_for(10 * INTERVAL_US)
    assert len(listener.messages) == 11
