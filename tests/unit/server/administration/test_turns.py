"""Long looks: how often they let others be served, and how much of the loop they take."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure.server.administration import turns
from perdure.server.administration.turns import Turns


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a look waits for, on a clock that only its steps move."""
    found: list[float] = []

    async def sleep(delay_s: float) -> None:
        found.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


async def test_a_look_rests_after_each_step(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0, 1, turns.STEP_NS - 1, turns.STEP_NS, 10 * turns.STEP_NS, 11 * turns.STEP_NS - 1])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    look = Turns()
    await look.step()
    await look.step()
    assert slept == [], "the step is not over"
    await look.step()
    assert slept == [turns.PAUSE_S], "a pause of nothing would keep the interpreter from the commit"
    await look.step()
    assert len(slept) == 1, "the next step begins after the pause"
    assert 0 < turns.STEP_NS <= turns.PAUSE_S * 1e9 / 4


async def test_where_no_client_is_served_nobody_is_waited_for(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0, turns.STEP_NS, turns.STEP_NS])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    await Turns(pauses=False).step()
    assert slept == [0]
