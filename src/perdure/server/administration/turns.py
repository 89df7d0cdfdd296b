"""Long looks in short steps: clients are served in between.

How much one step may look at is a time and no number: a row that is decoded from a store costs ten
times what one in memory costs, and a compiled build a third of a plain one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, final

STEP_NS: Final = 200_000
"""Longest that a look keeps the loop, as far as it can be cut: what a batch of publishes takes."""

PAUSE_S: Final = 0.001
"""How long a look waits between steps. Without it PUBACKs beside open pages came later (p99 8.5 ms,
5 to 6 with it), most likely because the thread that commits waits for the interpreter, which a loop
that only turns keeps for up to 5 ms (``sys.getswitchinterval``)."""


@final
class Turns:
    """The steps of one look; begins now.

    Args:
        pauses: a broker serves clients in this process.
    """

    __slots__ = ("_pause_s", "_until_ns")

    def __init__(self, *, pauses: bool = True) -> None:
        self._pause_s = PAUSE_S if pauses else 0.0
        self._until_ns = time.perf_counter_ns() + STEP_NS

    async def step(self) -> None:
        """After each row: let others be served if this step was long enough."""
        if time.perf_counter_ns() >= self._until_ns:
            await asyncio.sleep(self._pause_s)
            self._until_ns = time.perf_counter_ns() + STEP_NS
