"""From when on a client wants the past: a moment, or a place in the log."""

from __future__ import annotations

import pytest

from perdure.broker.connection.replay_request import (
    parse_time_us,
    requested_by_property,
    split_replay_filter,
)
from perdure.mqtt.packets import Subscribe, SubscribeFilter
from perdure.mqtt.property_values import Properties
from perdure.storage.ordered.contract import TIME_STEP_US

DATE, DATE_US = "2026-11-20T08:00:00.123456Z", 1_795_161_600_123_456


def test_a_moment_is_the_beginning_of_a_step_of_the_logs_time() -> None:
    """What was taken right after it may have the offset of the step: it would be missed."""
    assert parse_time_us(DATE) == DATE_US
    assert parse_time_us(DATE, step_us=TIME_STEP_US) == DATE_US - 456
    assert split_replay_filter(f"$replay/{DATE}/a/b", step_us=1_000) == (DATE_US - 456, "a/b")
    properties = Properties(user_properties=(("replay-from", DATE),))
    packet = Subscribe(1, [SubscribeFilter("a", 1)], properties)
    assert requested_by_property(packet, step_us=1_000) == DATE_US - 456


@pytest.mark.parametrize("number", [0, 1, DATE_US])
def test_a_number_is_a_moment_too(number: int) -> None:
    assert parse_time_us(str(number)) == number
    assert parse_time_us(str(number), step_us=TIME_STEP_US) == number // 1_000 * 1_000
