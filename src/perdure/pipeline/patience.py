"""How long a reader waits for a broker that is away, or has no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, final

from perdure.errors import StorageUnavailable

BUSY_WAIT_S: Final = 600.0
"""How long to wait for a turn where the broker says that it has too many reads."""

_PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)


@final
class Unreachable(Exception):
    """The broker is not there now, or has no time: asking again may help."""

    def __init__(self, message: str, *, is_busy: bool = False) -> None:
        super().__init__(message)
        self.is_busy = is_busy


@final
class Patience:
    """How long a broker that is away is waited for.

    Args:
        wait_s: since it was last heard of; 0 = not at all.
        clock, sleep: for tests.
    """

    def __init__(
        self,
        wait_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._wait_s = wait_s
        self._clock = clock
        self._sleep = sleep
        self.reset()

    def reset(self) -> None:
        """The broker has answered."""
        self._since = self._clock()
        self._tries = 0

    def wait(self, away: Unreachable) -> None:
        """Wait a little.

        Raises:
            StorageUnavailable: it was long enough.
        """
        limit = max(self._wait_s, BUSY_WAIT_S) if away.is_busy else self._wait_s
        if self._clock() - self._since >= limit:
            raise StorageUnavailable(
                str(away), hint="is the broker running, and http.bind set to this address?"
            ) from None
        self._sleep(_PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)])
        self._tries += 1
