"""All that one broker counts."""

from __future__ import annotations

from perdure.observe.metrics import Metrics


def test_messages_without_subscriber_are_not_dropped_ones() -> None:
    metrics = Metrics()
    metrics.messages_dropped_no_subscriber = 5
    metrics.messages_dropped_expired = 2
    metrics.messages_dropped_retention = 1
    assert metrics.messages_dropped == 3
