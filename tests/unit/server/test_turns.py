"""Long looks: how often they let others be served, and how much of the loop they take."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure.server import turns
from perdure.server.turns import Turns


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a look waits for, on a clock that only its steps move."""
    found: list[float] = []

    async def sleep(delay_s: float) -> None:
        found.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(turns._ROW, "_free_ns", 0)
    return found


async def test_a_look_rests_after_each_step(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    end_ns = turns.STEP_NS
    now = iter([0, 1, end_ns - 1, end_ns, end_ns, 10 * end_ns, 11 * end_ns - 1])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    look = Turns()
    await look.step()
    await look.step()
    assert slept == [], "the step is not over"
    await look.step()
    assert slept == [turns.PAUSE_NS / 1e9], (
        "a pause of nothing would keep the interpreter from the commit"
    )
    await look.step()
    assert len(slept) == 1, "the next step begins after the pause"
    assert 0 < turns.STEP_NS <= turns.PAUSE_NS / 4


async def test_looks_at_the_same_time_stand_in_line(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now_ns)
    now_ns = 0
    looks = [Turns() for _ in range(5)]
    now_ns = turns.STEP_NS
    for look in looks:
        await look.step()
    each_ns = turns.PAUSE_NS + turns.STEP_NS
    expected = [turns.PAUSE_NS + number * each_ns for number in range(5)]
    assert [round(wait_s * 1e9) for wait_s in slept] == expected
    # Who was not here meanwhile waits for nobody.
    now_ns += 1_000 * each_ns
    await looks[0].step()
    assert round(slept[-1] * 1e9) == turns.PAUSE_NS


async def test_where_no_client_is_served_nobody_is_waited_for(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0, turns.STEP_NS, turns.STEP_NS])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    await Turns(pauses=False).step()
    assert slept == [0]
