"""A count of much in short steps, with the pauses of every other look."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from perdure.server import turns
from perdure.server.stepwise import COUNTED_MAX, STRETCH_FIRST_US, StepwiseRows

ROWS = 10 * COUNTED_MAX
END_US = ROWS * STRETCH_FIRST_US // COUNTED_MAX


class Rows:
    """Messages at equal distances, all of which match."""

    def __init__(self) -> None:
        self.most = 0

    async def count(self, filters: Any, *, after_offset: int, until_offset: int, limit: int) -> int:
        found = min(limit, (until_offset - after_offset) * ROWS // END_US)
        self.most = max(self.most, found)
        return found


@pytest.mark.parametrize("pauses", [True, False])
async def test_a_count_leaves_the_loop_alone_between_its_steps(
    monkeypatch: pytest.MonkeyPatch, pauses: bool
) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(turns._ROW, "_free_ns", 0)
    now = itertools.count(0, turns.STEP_NS)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    rows: Any = Rows()
    stepwise = StepwiseRows(rows, pauses=pauses)
    found = await stepwise.count(["#"], after_offset=0, until_offset=END_US, limit=ROWS)
    assert found == ROWS
    assert rows.most <= COUNTED_MAX + 1
    assert len(slept) >= ROWS // COUNTED_MAX
    assert all((delay_s > 0) == pauses for delay_s in slept)
