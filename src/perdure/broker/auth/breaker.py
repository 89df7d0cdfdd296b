"""A circuit breaker: what has failed several times in a row is left alone for a while. Pure.

::

    closed --failures_max in a row--> open --open_us later--> half open --one answer--> closed
                                        ^                         |
                                        +------one failure--------+
"""

from __future__ import annotations

from typing import final


@final
class Breaker:
    """Says whether to ask.

    Args:
        failures_max: failures in a row that open it.
        open_us: how long it stays open.
    """

    __slots__ = ("_failures", "_failures_max", "_is_trying", "_open_us", "_until_us")

    def __init__(self, *, failures_max: int, open_us: int) -> None:
        self._failures_max = failures_max
        self._open_us = open_us
        self._failures = 0
        self._until_us = 0
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        """Whether it has opened, and no answer has come since."""
        return self._failures >= self._failures_max

    def may_ask(self, now_us: int) -> bool:
        """Whether to ask now; who is told so says how it ended."""
        if not self.is_open:
            return True
        if now_us < self._until_us or self._is_trying:
            return False
        self._is_trying = True
        return True

    def succeeded(self) -> None:
        """An answer has come."""
        self._failures = 0
        self._is_trying = False

    def failed(self, now_us: int) -> None:
        """None has."""
        self._failures += 1
        self._is_trying = False
        if self.is_open:
            self._until_us = now_us + self._open_us

    def given_up(self) -> None:
        """Nobody knows: whoever asked has gone."""
        self._is_trying = False
