"""The text is what Prometheus parses, with the numbers that were counted."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.observe import Metrics
from perdure.observe.metrics_text import MetricsText


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = "".join(MetricsText(metrics, version="1.2.3", backend="rocksdb").families())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_gauges_and_labels() -> None:
    metrics = Metrics()
    metrics.messages_received_1 = 12
    metrics.sessions_offline = 3
    metrics.messages_dropped_expired = 4
    metrics.connection_opened("tcp", "5")
    found = samples(metrics)
    assert found["perdure_messages_received_total", (("qos", "1"),)] == 12
    assert found["perdure_sessions", (("state", "offline"),)] == 3
    assert found["perdure_messages_dropped_total", (("reason", "expired"),)] == 4
    assert found["perdure_connections", (("listener", "tcp"),)] == 1
    opened = (("listener", "tcp"), ("protocol", "5"))
    assert found["perdure_connections_opened_total", opened] == 1
    build = next(labels for name, labels in found if name == "perdure_build_info")
    assert dict(build)["version"] == "1.2.3"


def test_histograms_are_cumulative_and_in_seconds() -> None:
    metrics = Metrics()
    for value_us in (10, 1000, 1_000_000, 10**12):
        metrics.storage_commit_seconds.observe(value_us)
    found = samples(metrics)
    name = "perdure_storage_commit_seconds"
    assert found[f"{name}_bucket", (("le", "1.6e-05"),)] == 1
    assert found[f"{name}_bucket", (("le", "0.001024"),)] == 2
    assert found[f"{name}_bucket", (("le", "1.048576"),)] == 3
    assert found[f"{name}_bucket", (("le", "+Inf"),)] == 4
    assert found[f"{name}_count", ()] == 4
    assert found[f"{name}_sum", ()] == pytest.approx(1_000_001.00101)


def test_batch_sizes_are_messages() -> None:
    metrics = Metrics()
    metrics.storage_commit_batch_messages.observe(5)
    found = samples(metrics)
    name = "perdure_storage_commit_batch_messages"
    assert found[f"{name}_bucket", (("le", "4.0"),)] == 0
    assert found[f"{name}_bucket", (("le", "8.0"),)] == 1
