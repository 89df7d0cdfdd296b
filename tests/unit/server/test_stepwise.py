"""A look at much in short steps, with the pauses of every other look."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from perdure.server import turns
from perdure.server.stepwise import COUNTED_MAX, LONG_NS, STRETCH_FIRST_US, StepwiseRows
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


class Vain:
    """Much is looked at, and nothing matches: a microsecond for each of the log."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.stretches: list[int] = []

    async def count(
        self, filters: Any, *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        self.stretches.append(until_offset - after_offset)
        self.now_ns += (until_offset - after_offset) * 1_000
        return Counted(0, until_offset)


async def test_a_count_that_finds_nothing_looks_at_so_much_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def sleep(_delay_s: float) -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", sleep)
    rows: Any = Vain()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: rows.now_ns)
    assert await count_recorded(StepwiseRows(rows), ["a"], after=0, until=10**7, limit=9) == 0
    assert sum(rows.stretches) == 10**7
    assert rows.stretches[0] == STRETCH_FIRST_US
    assert max(rows.stretches[5:]) * 1_000 <= LONG_NS
