"""A look at much in short steps, with the pauses of every other look."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from perdure.server import turns
from perdure.server.stepwise import COUNTED_MAX, StepwiseRows
from perdure.session.pending_pages import count_recorded
from perdure.storage.contract import Counted

ROWS = 10 * COUNTED_MAX


class Rows:
    """A message at each offset, all of which match."""

    def __init__(self) -> None:
        self.most = 0

    async def count(
        self, filters: Any, *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        found = min(limit, until_offset - after_offset)
        self.most = max(self.most, found)
        return Counted(found, after_offset + found)


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
    assert await count_recorded(stepwise, ["#"], after=0, until=ROWS, limit=2 * ROWS) == ROWS
    assert rows.most == COUNTED_MAX
    assert len(slept) >= ROWS // COUNTED_MAX
    assert all((delay_s > 0) == pauses for delay_s in slept)
    assert await count_recorded(stepwise, ["#"], after=0, until=ROWS, limit=300) == 300
