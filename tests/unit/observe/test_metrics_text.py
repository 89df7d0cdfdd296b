"""The text of the metrics is the one that the library writes, in both of its formats."""

from __future__ import annotations

import pytest
from prometheus_client import Counter, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

from perdure.observe.instruments import Histogram, add
from perdure.observe.metrics import Metrics
from perdure.observe.metrics_text import MetricsText
from tests.unit.observe.collector import MetricsCollector


def told(metrics: Metrics, *, is_open: bool) -> tuple[str, str]:
    """The text, and the library's."""
    beside, whole = CollectorRegistry(), CollectorRegistry()
    whole.register(MetricsCollector(metrics, version='1 "a"', backend="rocks\\db"))
    for registry in (beside, whole):
        Counter("others_total", 'What "others" \n count.', registry=registry).inc(3)
    text = MetricsText(metrics, version='1 "a"', backend="rocks\\db", registry=beside)
    found = "".join(text.families(is_open=is_open))
    if is_open:
        wanted = openmetrics.generate_latest(whole)  # type: ignore[no-untyped-call]
    else:
        wanted = generate_latest(whole)
    return _without_times(found), _without_times(wanted.decode())


def _without_times(text: str) -> str:
    """The library's own counters say when they were made."""
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith("others_created ")
    )


@pytest.mark.parametrize("is_open", [False, True])
def test_what_was_counted_is_told_as_the_library_tells_it(is_open: bool) -> None:
    metrics = Metrics()
    metrics.messages_received_1 = 999_999
    metrics.bytes_received = 1_000_000
    metrics.bytes_sent = 123_456_789_012_345_678
    metrics.control_packets_received[3] = 7
    metrics.protocol_errors[0x82] = 2
    metrics.connection_opened('tcp:"x"\n\\', "5.0")
    add(metrics.auth_checks, ("http", "deny"))
    metrics.auth_check_seconds["http",] = Histogram()
    metrics.auth_check_seconds["http",].observe(1_500_000, 3)
    metrics.publish_to_ack_seconds_1.observe(2_000_000_000_000)
    found, wanted = told(metrics, is_open=is_open)
    assert found == wanted
    assert 'perdure_auth_check_seconds_bucket{le="2.097152",method="http"} 3.0' in found
    assert "perdure_bytes_received_total 1e+06\n" in found
    assert "others_total 3.0\n" in found
    assert found.endswith("# EOF\n") == is_open


def test_a_text_has_the_numbers_of_its_own_moment() -> None:
    metrics = Metrics()
    text = MetricsText(metrics, version="1", backend="b")
    before = "".join(text.families())
    metrics.messages_received_2 += 1
    metrics.publish_to_ack_seconds_2.observe(5)
    after = "".join(text.families())
    changed = {
        line.partition(" ")[0]
        for line, old in zip(after.splitlines(), before.splitlines(), strict=True)
        if line != old
    }
    assert 'perdure_messages_received_total{qos="2"}' in changed
    assert 'perdure_publish_to_ack_seconds_count{qos="2"}' in changed
