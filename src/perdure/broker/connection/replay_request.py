"""Asking for the past: ``replay-from`` (5.0) and ``$replay/<from>/<filter>`` (3.1.1).

A time is RFC 3339 (``2026-11-20T08:00:00Z``, an offset or ``Z`` is required) or a whole number of
microseconds since the epoch; 0 is the beginning of the log.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from perdure.errors import MqttError
from perdure.limits import OFFSET_MAX
from perdure.mqtt.packets import Subscribe
from perdure.mqtt.reason_codes import TOPIC_FILTER_INVALID

REPLAY_PROPERTY: Final = "replay-from"
REPLAY_PREFIX: Final = "$replay/"

TIME_CHARS_MAX: Final = 64
"""Longest text that can be a time; RFC 3339 with an offset and nanoseconds has 35 characters, an
offset of the log 19 digits. A longer one is not looked at: Python refuses to read 4,301 digits."""


def parse_time_us(text: str) -> int:
    """Microseconds since the epoch.

    Raises:
        MqttError: 0x8F, not a time.
    """
    if len(text) > TIME_CHARS_MAX:
        raise _no_time(text)
    if text.isascii() and text.isdigit():
        at_us = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                raise _no_time(text)
            at_us = round(moment.timestamp() * 1_000_000)
        except (ValueError, OverflowError):
            # The first and the last day of the calendar have no time in other zones.
            raise _no_time(text) from None
    if not 0 <= at_us <= OFFSET_MAX:
        raise MqttError(TOPIC_FILTER_INVALID, "replay time is out of range")
    return at_us


def _no_time(text: str) -> MqttError:
    return MqttError(
        TOPIC_FILTER_INVALID,
        f"replay from {text[:40]!r}: RFC 3339 with a zone, or microseconds, expected",
    )


def requested_by_property(packet: Subscribe) -> int:
    """The ``replay-from`` of a SUBSCRIBE as microseconds; -1 = not asked for."""
    for name, value in packet.properties.user_properties:
        if name == REPLAY_PROPERTY:
            return parse_time_us(value)
    return -1


def split_replay_filter(topic_filter: str) -> tuple[int, str]:
    """(-1, filter) or, for ``$replay/<from>/<filter>``, (microseconds, filter)."""
    if not topic_filter.startswith(REPLAY_PREFIX):
        return -1, topic_filter
    start, slash, rest = topic_filter[len(REPLAY_PREFIX) :].partition("/")
    if not slash or not rest:
        raise MqttError(TOPIC_FILTER_INVALID, "$replay/<from>/<filter> expected")
    return parse_time_us(start), rest
