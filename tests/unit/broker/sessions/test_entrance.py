"""A session with many subscriptions has them again some in a turn, all before its CONNACK."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.broker.delivery.live_session import LiveSession
from perdure.broker.runtime.turn_budget import TurnBudget
from perdure.broker.sessions.entrance import RESTORED_MAX, SessionEntrance
from perdure.model import Subscription
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim

COUNT = 3 * RESTORED_MAX + 7


def _with_filters(sim: SimBroker) -> Client:
    client = Client(sim, "many")
    client.connect()
    for first in range(0, COUNT, 1_000):
        client.subscribe(*[f"t/{n}/+" for n in range(first, min(first + 1_000, COUNT))], qos=1)
    client.cut()
    return client


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[Callable[[], None]]]:
    """Subscriptions that stood again in each step, and what to do between two."""
    counts, between = [0], list[Callable[[], None]]()
    restore, step = SessionEntrance._restore, TurnBudget.step

    def counted(entrance: SessionEntrance, session: LiveSession, sub: Subscription) -> None:
        counts[-1] += 1
        restore(entrance, session, sub)

    async def stepped(budget: TurnBudget, owner: object) -> None:
        if isinstance(owner, LiveSession):
            counts.append(0)
            for act in between:
                act()
        await step(budget, owner)

    monkeypatch.setattr(SessionEntrance, "_restore", counted)
    monkeypatch.setattr(TurnBudget, "step", stepped)
    return counts, between


def test_some_stand_again_in_each_turn(
    steps: tuple[list[int], list[Callable[[], None]]],
) -> None:
    sim = make_sim()
    client = _with_filters(sim)
    writer = Client(sim, "writer")
    writer.connect()
    writer.publish("t/0/x", b"waited", qos=1)
    steps[1].append(lambda: writer.publish(f"t/{COUNT - 1}/x", b"meanwhile", qos=1))
    assert client.connect().session_present
    assert steps[0] == [RESTORED_MAX] * 3 + [7]
    writer.publish(f"t/{COUNT - 1}/x", b"live", qos=1)
    assert client.payloads() == [b"waited", *[b"meanwhile"] * 3, b"live"]
    assert sim.live.services.metrics.subscriptions == COUNT


def test_who_hangs_up_meanwhile_leaves_nothing_behind(
    steps: tuple[list[int], list[Callable[[], None]]],
) -> None:
    sim = make_sim()
    client = _with_filters(sim)
    assert client.wire is not None
    steps[1].append(lambda: client.wire.cut() if client.wire is not None else None)
    client.connect(wait=False)
    sim.run_for(1_000_000)
    services = sim.live.services
    assert not services.registry.live
    assert len(services.router.index) == 0
    assert services.metrics.subscriptions == 0
    steps[1].clear()
    assert client.connect().session_present
    assert services.metrics.subscriptions == COUNT
