"""When ``perdure sub`` connects again: how long it waits, and what it does not try twice.

Knows codes and numbers only; whoever waits is elsewhere.
"""

from __future__ import annotations

import random
from typing import Final, final

from perdure.errors import MqttError
from perdure.mqtt import reason_codes as codes
from perdure.mqtt.packets import V5

PAUSE_FIRST_S: Final = 0.5
"""Longest pause before the first attempt."""
PAUSE_MAX_S: Final = 30.0
"""Longest pause between two attempts."""
STABLE_S: Final = 10.0
"""A connection that has lasted so long was a success: the pauses begin anew."""


_TEMPORARY: Final = frozenset(
    {
        codes.NORMAL_DISCONNECTION,
        codes.UNSPECIFIED_ERROR,  # a store that fails
        codes.IMPLEMENTATION_SPECIFIC_ERROR,
        codes.SERVER_UNAVAILABLE,
        codes.SERVER_BUSY,
        codes.SERVER_SHUTTING_DOWN,
        codes.KEEP_ALIVE_TIMEOUT,
        codes.RECEIVE_MAXIMUM_EXCEEDED,
        codes.MESSAGE_RATE_TOO_HIGH,
        codes.QUOTA_EXCEEDED,
        codes.ADMINISTRATIVE_ACTION,
        codes.CONNECTION_RATE_EXCEEDED,
        codes.MAXIMUM_CONNECT_TIME,
    }
)
"""Reason codes of MQTT 5.0 after which the same may succeed later."""

_TEMPORARY_311: Final = frozenset({0, 3})
"""Return codes of 3.1.1: 3 = server unavailable."""


def is_final(error: MqttError | OSError, version: int) -> bool:
    """Whether the broker would say the same to the same client again: credentials, identifier,
    protocol and filters do not get better by asking."""
    if not isinstance(error, MqttError):
        return False
    if version == V5 or error.reason_code >= codes.UNSPECIFIED_ERROR:
        return error.reason_code not in _TEMPORARY
    return error.reason_code not in _TEMPORARY_311


@final
class Backoff:
    """Pauses between attempts: twice as long each time, and half of each by chance, so that
    clients that lost one broker together do not come back together.

    Args:
        chance: decides.
        first_s: longest pause before the first attempt, seconds.
    """

    def __init__(self, chance: random.Random, *, first_s: float = PAUSE_FIRST_S) -> None:
        self._chance = chance
        self._first_s = first_s
        self._next_s = first_s

    def connected(self, lasted_s: float) -> None:
        """A connection has come to its end after this time, seconds.

        One that the broker ended at once was no success, and must not be tried at once.
        """
        if lasted_s >= STABLE_S:
            self._next_s = self._first_s

    def pause_s(self) -> float:
        """How long to wait before the next attempt, seconds."""
        longest = self._next_s
        self._next_s = min(2 * longest, PAUSE_MAX_S)
        return longest * self._chance.uniform(0.5, 1.0)
