"""What a broker counted in the last hour, from memory.

A look each second gives the rates of the last ten; each tenth look is a point of the hour. The
cost is a handful of ints each second, whoever watches.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.admin.records.node import History, Rates
from perdure.config.units import format_time
from perdure.observe.instruments import quantile
from perdure.observe.process_numbers import cpu_s

if TYPE_CHECKING:
    from perdure.broker.services import Services
    from perdure.observe.metrics import Metrics

LOOK_S: Final = 1.0
STEP_LOOKS: Final = 10
POINTS_MAX: Final = 360
"""Points of ten seconds: an hour."""

COUNTERS: Final = (
    "messages_received",
    "messages_delivered",
    "messages_dropped",
    "bytes_received",
    "bytes_sent",
    "connections_opened",
    "cpu_cores",
)
"""Shown per second; of CPU, that is how many cores were busy."""

LATENCIES: Final = {"ack_p50_us": 0.5, "ack_p99_us": 0.99}
"""From PUBLISH to its acknowledgement: by name, the share that was as fast or faster."""

GAUGES: Final = (
    "connections",
    "sessions_connected",
    "sessions_offline",
    "subscriptions",
    "inflight_messages",
    "pending_messages",
    "retained_messages",
    "log_bytes",
    "event_loop_lag_us",
    *LATENCIES,
)


def _counters(metrics: Metrics) -> tuple[float, ...]:
    return (
        metrics.messages_received,
        metrics.messages_delivered,
        metrics.messages_dropped,
        metrics.bytes_received,
        metrics.bytes_sent,
        sum(metrics.connections_opened.values()),
        cpu_s(),
    )


def _acknowledged(metrics: Metrics) -> list[int]:
    """Acknowledgements by how long they took, as a histogram counts."""
    first, second = metrics.publish_to_ack_seconds_1, metrics.publish_to_ack_seconds_2
    return [one + two for one, two in zip(first.counts, second.counts, strict=True)]


@final
class Recorder:
    """Looks at the counters.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._looks: deque[tuple[int, tuple[float, ...]]] = deque(maxlen=STEP_LOOKS + 1)
        self._acknowledged: deque[list[int]] = deque(maxlen=STEP_LOOKS + 1)
        self._count = 0
        self._until_us = 0
        self._lag_max_us = 0
        self._points: deque[array[float]] = deque(maxlen=POINTS_MAX)
        self.lag_us = 0
        """How late the loop was at the last look."""

    async def run(self) -> None:
        """Look each second, for ever."""
        loop = asyncio.get_running_loop()
        self.look()
        while True:
            due = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.lag_us = max(0, round((loop.time() - due) * 1_000_000))
            self.look()

    def look(self) -> None:
        """Take one look."""
        clock = self._services.clock
        self._lag_max_us = max(self._lag_max_us, self.lag_us)
        self._looks.append((clock.monotonic_us(), _counters(self._services.metrics)))
        self._acknowledged.append(_acknowledged(self._services.metrics))
        if self._count and not self._count % STEP_LOOKS:
            self._until_us = clock.wall_us()
            self._points.append(array("d", [*self._rates(), *self._gauges()]))
            self._lag_max_us = 0
        self._count += 1

    def rates(self) -> Rates:
        """Of the last ten seconds, or of what there is of them."""
        window_us = self._looks[-1][0] - self._looks[0][0] if self._looks else 0
        if window_us <= 0:
            return Rates(window_s=0)
        found: dict[str, float | None] = {
            "window_s": window_us / 1_000_000,
            **dict(zip(COUNTERS, self._rates(), strict=True)),
            **self._latencies(),
        }
        return msgspec.convert(found, Rates)

    def history(self, seconds: int) -> History:
        """The last points."""
        count = max(1, seconds // STEP_LOOKS)
        points = list(self._points)[-count:]
        return History(
            step_s=STEP_LOOKS,
            until=format_time(self._until_us),
            until_us=self._until_us,
            series={
                name: [point[index] for point in points]
                for index, name in enumerate((*COUNTERS, *GAUGES))
            },
        )

    def _rates(self) -> list[float]:
        (first_us, before), (last_us, now) = self._looks[0], self._looks[-1]
        elapsed_s = (last_us - first_us) / 1_000_000 or 1.0
        return [
            round((after - earlier) / elapsed_s, 3)
            for earlier, after in zip(before, now, strict=True)
        ]

    def _latencies(self) -> dict[str, int | None]:
        before, now = self._acknowledged[0], self._acknowledged[-1]
        counts = [after - earlier for earlier, after in zip(before, now, strict=True)]
        return {name: quantile(counts, share) for name, share in LATENCIES.items()}

    def _gauges(self) -> list[float]:
        metrics = self._services.metrics
        return [
            metrics.connections_now,
            metrics.sessions_connected,
            metrics.sessions_offline,
            metrics.subscriptions + metrics.subscriptions_offline,
            metrics.inflight_messages,
            metrics.pending_messages,
            metrics.retained_messages,
            metrics.storage_bytes,
            self._lag_max_us,
            *(each or 0 for each in self._latencies().values()),
        ]
