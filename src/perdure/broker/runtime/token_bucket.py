"""Rates that a client or all of them may not exceed. Pure: time is an argument.

Invariant: whole numbers only. A bucket holds millionths of a token, and a microsecond adds
``rate`` of them, so nothing is lost to rounding however often it is asked.
"""

from __future__ import annotations

from typing import Final, final

_SCALE: Final = 1_000_000
"""Parts of a token; one microsecond at one token a second."""


@final
class TokenBucket:
    """Lets ``rate`` tokens a second pass, and ``burst`` at once.

    Args:
        rate: tokens per second, at least 1.
        burst: tokens that may be saved up, at least 1; 0 = one second's worth.
        now_us: monotonic time; the bucket is full then.
    """

    __slots__ = ("_full", "_level", "_rate", "_updated_us")

    def __init__(self, rate: int, burst: int = 0, *, now_us: int = 0) -> None:
        if rate < 1 or burst < 0:
            raise ValueError("a bucket needs a rate of 1 or more, and no negative burst")
        self._rate = rate
        self._full = (burst or rate) * _SCALE
        self._level = self._full
        self._updated_us = now_us

    def take(self, n: int, now_us: int) -> int:
        """Take tokens, on credit if need be.

        For what has arrived already, such as bytes of a PUBLISH: it is let in, and the
        connection is not read from until the debt is paid.

        Returns:
            Microseconds until the bucket is out of debt; 0 = go on at once.
        """
        self._refill(now_us)
        self._level -= n * _SCALE
        if self._level >= 0:
            return 0
        return -(self._level // self._rate)

    def try_take(self, n: int, now_us: int) -> bool:
        """Take tokens if there are enough; for what can be turned away."""
        self._refill(now_us)
        if self._level < n * _SCALE:
            return False
        self._level -= n * _SCALE
        return True

    def _refill(self, now_us: int) -> None:
        elapsed_us = now_us - self._updated_us
        if elapsed_us > 0:
            self._level = min(self._full, self._level + elapsed_us * self._rate)
            self._updated_us = now_us
