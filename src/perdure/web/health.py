"""Whether the broker beside us lives and takes messages: asked through its admin socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from perdure.admin.client import AsyncAdmin
from perdure.admin.problems import Refused
from perdure.admin.records.node import GetStats, Stats

TIMEOUT_S: Final = 5.0
KEEP_S: Final = 1.0
"""An answer holds for so long: nobody who may ask for health without a token can keep the broker
busy with it."""


@final
class Health:
    """The broker's state, as of a moment ago.

    Args:
        admin: asks it.
        clock: monotonic, seconds.
    """

    def __init__(self, admin: AsyncAdmin, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._asking = asyncio.Lock()
        self._asked_s = float("-inf")
        self._stats: Stats | None = None

    async def stats(self) -> Stats | None:
        """What ``perdure status`` shows; None = the broker does not answer."""
        async with self._asking:
            if self._clock() - self._asked_s > KEEP_S:
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        self._stats = await self._admin.call(GetStats())
                except (Refused, TimeoutError, ValueError):
                    self._stats = None
                self._asked_s = self._clock()
            return self._stats
