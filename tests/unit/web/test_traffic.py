"""What requests came to: in one process, and in the broker's metrics."""

from __future__ import annotations

import msgspec

from perdure.observe.metrics import Metrics
from perdure.web.traffic import Traffic, TrafficMetrics, TrafficReport


def test_differences_are_told_once() -> None:
    traffic = Traffic()
    assert traffic.take() is None
    traffic.begun()
    traffic.begun()
    assert traffic.take() == TrafficReport([], [], [], 2)
    assert traffic.take() is None
    traffic.ended("/a", "GET", "200", kind="query", elapsed_us=5)
    traffic.sent("/a", 7)
    traffic.sent("/a", 3)
    told = traffic.take()
    assert told is not None
    assert (told.requests, told.response_bytes, told.in_flight) == (
        [("/a", "GET", "200", 1)],
        [("/a", 10)],
        1,
    )
    ((kind, counts, total),) = told.seconds
    assert (kind, sum(counts), total) == ("query", 1, 5)
    traffic.ended("/a", "BREW", "cut", kind="read", elapsed_us=1)
    told = traffic.take()
    assert told is not None
    assert told.requests == [("/a", "other", "cut", 1)]
    assert traffic.take() is None


def test_the_metrics_add_up_over_processes() -> None:
    metrics = Metrics()
    broker = TrafficMetrics(metrics)
    for process in (1, 2):
        traffic = Traffic()
        for _ in range(3):
            traffic.begun()
        traffic.ended("/a", "GET", "200", kind="read", elapsed_us=100)
        traffic.sent("/a", 10)
        told = traffic.take()
        # As it comes through a pipe.
        broker.add_report(
            process, msgspec.json.decode(msgspec.json.encode(told), type=TrafficReport)
        )
    assert metrics.http_requests == {("/a", "GET", "200"): 2}
    assert metrics.http_response_bytes == {("/a",): 20}
    assert metrics.http_request_seconds_read.count == 2
    assert metrics.http_request_seconds_read.sum == 200
    assert metrics.http_requests_in_flight == 4
    broker.ended(1)
    broker.ended(7)
    assert metrics.http_requests_in_flight == 2


def test_connections_that_were_dropped_are_told() -> None:
    traffic, metrics = Traffic(), Metrics()
    traffic.dropped("evicted", 2)
    traffic.dropped("malformed")
    told = traffic.take()
    assert told is not None
    totals = TrafficMetrics(metrics)
    totals.add_report(7, told)
    totals.add_report(8, msgspec.convert(msgspec.to_builtins(told), TrafficReport))
    assert metrics.http_connections_dropped == {("evicted",): 4, ("malformed",): 2}
    assert traffic.take() is None
