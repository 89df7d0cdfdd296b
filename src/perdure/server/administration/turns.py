"""Long looks in short steps: clients are served in between.

How much one step may look at is a time and no number: a row that is decoded from a store costs ten
times what one in memory costs, and a compiled build a third of a plain one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, final

STEP_NS: Final = 300_000
"""Longest that a look keeps the loop, as far as it can be cut: what a batch of publishes takes."""


@final
class Turns:
    """The steps of one look; begins now."""

    __slots__ = ("_until_ns",)

    def __init__(self) -> None:
        self._until_ns = time.perf_counter_ns() + STEP_NS

    async def step(self) -> None:
        """After each row: let the loop turn if this step was long enough."""
        if time.perf_counter_ns() >= self._until_ns:
            await asyncio.sleep(0)
            self._until_ns = time.perf_counter_ns() + STEP_NS
