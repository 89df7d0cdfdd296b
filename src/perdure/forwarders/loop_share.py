"""How long a forwarder works before it is the clients' turn: a share of the loop, not a count.

With a fixed number of messages for each turn a forwarder falls behind just when the broker has most
to do, for turns are long then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore

WORK_MIN_US: Final = 500
"""At each turn, at least: what others wait for it while the loop has little to do."""
WORK_MAX_US: Final = 5_000
"""At each turn, at most."""
SHARE: Final = 3
"""One part in so many of what the turn before took the others."""


@final
class LoopShare:
    """Measures work on the loop, and rests in time.

    Args:
        core: of the broker.
    """

    __slots__ = ("_core", "_until_us")

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._until_us = core.clock.monotonic_us() + WORK_MIN_US

    async def yield_if_due(self) -> None:
        """Let others have a turn if it is time for it; called after each small piece of work."""
        core = self._core
        stopped_us = core.clock.monotonic_us()
        if stopped_us < self._until_us:
            return
        await core.yield_to_loop()
        now_us = core.clock.monotonic_us()
        work_us = min(WORK_MAX_US, max(WORK_MIN_US, (now_us - stopped_us) // SHARE))
        self._until_us = now_us + work_us
