"""What is due at one instant does not keep everybody else waiting."""

from __future__ import annotations

import pytest

from perdure.broker.core import BrokerCore
from perdure.broker.sessions.reaper import DUE_BYTES, DUE_PAGE, Reaper
from perdure.model import Will
from tests.unit.broker.harness import Client, make_sim


@pytest.mark.parametrize(
    ("will_bytes", "page"),
    [(1, DUE_PAGE), (40_000, -(-DUE_BYTES // 40_000)), (65_535, 5), (0, DUE_PAGE)],
)
def test_what_is_due_at_once_is_handled_some_in_each_turn(will_bytes: int, page: int) -> None:
    sim = make_sim()
    count = 3 * page + 1
    has_will = will_bytes > 0
    will = Will("due", bytes(will_bytes), 0, delay_s=10) if has_will else None
    for number in range(count):
        client = Client(sim, f"c{number}")
        client.connect(expiry_s=600 if has_will else 10, will=will)
        client.cut()
    sim.kill()
    sim.run_for(100_000_000)
    handled = [0]
    yields, handle = BrokerCore.yield_to_loop, Reaper._handle

    async def turn(core: BrokerCore) -> None:
        if handled[-1]:
            handled.append(0)
        await yields(core)

    async def counted(reaper: Reaper, client_id: str) -> None:
        handled[-1] += 1
        await handle(reaper, client_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerCore, "yield_to_loop", turn)
        patch.setattr(Reaper, "_handle", counted)
        sim.start()
        sim.run_for(60_000_000)
    assert handled == [page] * 3 + [1, 0]
    assert sim.live.services.metrics.sessions_offline == (count if has_will else 0)
