"""Everything that is counted, as text for Prometheus, made in short steps.

The text of a broker takes some milliseconds; a publish would wait for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from perdure.observe.metrics_text import MetricsText
from perdure.server.turns import Turns

KEPT_US: Final = 1_000_000
"""How long a text is given out: who scrapes more often is told the same."""


@final
class SteppedExposition:
    """The broker's metrics as text, a family at a time.

    Args:
        metrics: writes them.
        monotonic_us: clock.
    """

    def __init__(self, metrics: MetricsText, monotonic_us: Callable[[], int]) -> None:
        self._metrics = metrics
        self._monotonic_us = monotonic_us
        self._lock = asyncio.Lock()
        self._text = ""
        self._made_us = -KEPT_US

    async def text(self) -> str:
        """The text, a second old at most."""
        async with self._lock:
            if self._monotonic_us() - self._made_us >= KEPT_US:
                parts, turns = list[str](), Turns()
                for text in self._metrics.families():
                    parts.append(text)
                    await turns.step()
                self._text = "".join(parts)
                self._made_us = self._monotonic_us()
            return self._text
