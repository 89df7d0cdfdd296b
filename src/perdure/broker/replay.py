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

REPLAY_PROPERTY: Final = "replay-from"
REPLAY_PREFIX: Final = "$replay/"
TOPIC_FILTER_INVALID: Final = 0x8F


def parse_time_us(text: str) -> int:
    """Microseconds since the epoch.

    Raises:
        MqttError: 0x8F, not a time.
    """
    if text.isascii() and text.isdigit():
        at_us = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise MqttError(
                TOPIC_FILTER_INVALID,
                f"replay from {text[:40]!r}: RFC 3339 with a zone, or microseconds, expected",
            )
        at_us = round(moment.timestamp() * 1_000_000)
    if not 0 <= at_us <= OFFSET_MAX:
        raise MqttError(TOPIC_FILTER_INVALID, "replay time is out of range")
    return at_us


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
