"""How many changes one principal may ask for: a bucket for each, refilled as time goes.

Reading is bounded by the work of a page; changes are written, audited and synced.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from perdure.admin.problems import Refused

CHANGES_PER_S: Final = 50.0
CHANGES_BURST: Final = 500.0
PRINCIPALS_MAX: Final = 1_000
"""Principals that are told apart; who has asked least lately begins anew."""


@final
class ChangePace:
    """Lets changes through at a rate.

    Args:
        clock: monotonic, seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Changes left, and when that was counted, by principal.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: str) -> None:
        """Count a change.

        Raises:
            Refused: it is one too many just now.
        """
        now_s = self._clock()
        left, counted_s = self._left.pop(principal, (CHANGES_BURST, now_s))
        left = min(CHANGES_BURST, left + (now_s - counted_s) * CHANGES_PER_S)
        self._left[principal] = (max(left - 1, 0.0) if left >= 1 else left, now_s)
        if len(self._left) > PRINCIPALS_MAX:
            self._left.popitem(last=False)
        if left < 1:
            wait_s = math.ceil((1 - left) / CHANGES_PER_S)
            raise Refused(
                "too_many_requests",
                f"{principal} changes more than {CHANGES_PER_S:g} things a second",
                hint="bulk operations are one change",
                details={"retry_after_s": wait_s},
            )
