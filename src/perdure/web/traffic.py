"""What the requests of one HTTP process have come to, told to the broker's metrics.

Counted here in plain ints and dictionaries; what has changed is reported about once a second as
differences, so that the broker's counters only grow although processes come and go. Labels are
closed sets: a path that nobody serves is ``other``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.observe.instruments import Histogram, add
from perdure.observe.metrics import Metrics

TRAFFIC: Final = "http.traffic"
"""Name of the event that carries a ``TrafficReport``."""

REPORT_S: Final = 1.0
"""How often a process tells."""

OTHER: Final = "other"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

GONE: Final = "gone"
"""Status of a request whose client went before it was answered."""

CUT: Final = "cut"
"""Status of an answer that was begun and broken off, by either side."""

Drop: TypeAlias = Literal[
    "evicted", "head_timeout", "body_timeout", "send_timeout", "malformed", "refused"
]
"""Why a connection was closed by us before its time."""

Kind: TypeAlias = Literal["probe", "query", "read"]
KINDS: Final[tuple[Kind, ...]] = ("probe", "query", "read")
"""What a request is about: health and version, what the log holds, messages. Their durations have
nothing in common."""


@final
class TrafficReport(msgspec.Struct, frozen=True):
    """What a process tells: differences since the last time, but for ``in_flight``.

    Attributes:
        requests: route, method, status and number.
        response_bytes: route and bytes of bodies.
        seconds: kind, and buckets and sum of durations in microseconds.
        in_flight: requests under way now.
        dropped: reason and number of connections that were closed before their time.
    """

    requests: list[tuple[str, str, str, int]]
    response_bytes: list[tuple[str, int]]
    seconds: list[tuple[Kind, list[int], int]]
    in_flight: int
    dropped: list[tuple[str, int]] = []


@final
class Traffic:
    """The requests of one process.

    Attributes:
        in_flight: requests under way.
    """

    def __init__(self) -> None:
        self.in_flight: int = 0
        self._requests: dict[tuple[str, ...], int] = {}
        self._bytes: dict[str, int] = {}
        self._seconds: dict[Kind, Histogram] = {}
        self._dropped: dict[str, int] = {}
        self._reported_in_flight: int = 0

    def begun(self) -> None:
        """A request has come."""
        self.in_flight += 1

    def ended(self, route: str, method: str, status: str, *, kind: Kind, elapsed_us: int) -> None:
        """It is answered, or will never be.

        Args:
            route: path of the resource, or ``OTHER``.
            method: of the request.
            status: of the answer, ``GONE`` or ``CUT``.
            kind: of the resource.
            elapsed_us: from the head of the request to the end of the answer, microseconds.
        """
        self.in_flight -= 1
        add(self._requests, (route, method if method in METHODS else OTHER, status))
        histogram = self._seconds.get(kind)
        if histogram is None:
            histogram = self._seconds[kind] = Histogram()
        histogram.observe(elapsed_us)

    def sent(self, route: str, size: int) -> None:
        """Bytes of a body were given to the network."""
        self._bytes[route] = self._bytes.get(route, 0) + size

    def dropped(self, why: Drop, count: int = 1) -> None:
        """Connections were closed before their time."""
        self._dropped[why] = self._dropped.get(why, 0) + count

    def take(self) -> TrafficReport | None:
        """What was not reported yet; None = nothing."""
        is_same = self.in_flight == self._reported_in_flight
        if not self._requests and not self._bytes and not self._dropped and is_same:
            return None
        report = TrafficReport(
            [(*labels, count) for labels, count in self._requests.items()],  # type: ignore[misc]
            list(self._bytes.items()),
            [(kind, found.counts, found.sum) for kind, found in self._seconds.items()],
            self.in_flight,
            list(self._dropped.items()),
        )
        self._requests, self._bytes, self._seconds, self._dropped = {}, {}, {}, {}
        self._reported_in_flight = self.in_flight
        return report


@final
class TrafficMetrics:
    """Adds what processes report to the broker's metrics.

    Args:
        metrics: the broker's.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._in_flight: dict[int, int] = {}

    def add_report(self, process: int, report: TrafficReport) -> None:
        """Count what a process reports."""
        metrics = self._metrics
        for route, method, status, count in report.requests:
            add(metrics.http_requests, (route, method, status), count)
        for why, count in report.dropped:
            add(metrics.http_connections_dropped, (why,), count)
        for route, size in report.response_bytes:
            add(metrics.http_response_bytes, (route,), size)
        by_kind = {
            "probe": metrics.http_request_seconds_probe,
            "query": metrics.http_request_seconds_query,
            "read": metrics.http_request_seconds_read,
        }
        for kind, counts, total in report.seconds:
            by_kind[kind].merge(counts, total)
        self._now(process, report.in_flight)

    def ended(self, process: int) -> None:
        """A process is gone, and what it was answering with it."""
        self._now(process, 0)

    def _now(self, process: int, in_flight: int) -> None:
        if in_flight:
            self._in_flight[process] = in_flight
        else:
            self._in_flight.pop(process, None)
        self._metrics.http_requests_in_flight = sum(self._in_flight.values())
