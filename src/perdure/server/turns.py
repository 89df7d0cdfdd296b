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

PAUSE_NS: Final = 1_000_000
"""How long the loop is left alone between two steps, of whichever looks. Without it PUBACKs beside
open pages came later (p99 8.5 ms, 5 to 6 with it), most likely because the commit thread waits for
the interpreter, which a loop that only turns kept for up to 5 ms; today ``process.SWITCH_S``."""


@final
class _Row:
    """Where all looks of this process stand in line, so that five at once take the loop no more
    often than one does."""

    __slots__ = ("_free_ns",)

    def __init__(self) -> None:
        self._free_ns = 0

    def wait_s(self) -> float:
        """How long the next look has to wait; its step is behind those that asked before it."""
        now_ns = time.perf_counter_ns()
        due_ns = max(now_ns, self._free_ns) + PAUSE_NS
        self._free_ns = due_ns + STEP_NS
        return (due_ns - now_ns) / 1e9


_ROW: Final = _Row()


@final
class Turns:
    """The steps of one look; begins now.

    Args:
        pauses: a broker serves clients in this process.
    """

    __slots__ = ("_pauses", "_until_ns")

    def __init__(self, *, pauses: bool = True) -> None:
        self._pauses = pauses
        self._until_ns = time.perf_counter_ns() + STEP_NS

    async def step(self) -> None:
        """After each row: let others be served if this step was long enough."""
        if time.perf_counter_ns() >= self._until_ns:
            await asyncio.sleep(_ROW.wait_s() if self._pauses else 0)
            self._until_ns = time.perf_counter_ns() + STEP_NS
