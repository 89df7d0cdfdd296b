"""The ``$SYS/broker/`` topics under Mosquitto's names, computed from ``Metrics``.

The caller publishes what this returns and asks again every ``sys.interval_s``; time is an
argument. Load averages are Mosquitto's: the rate per minute of the last interval, smoothed
exponentially over 1, 5 and 15 minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, final

from perdure.observe.metrics import Metrics

ROOT: Final = "$SYS/broker"

PERIODS: Final = (("1min", 60.0), ("5min", 300.0), ("15min", 900.0))

LOADS: Final[tuple[tuple[str, Callable[[Metrics], int]], ...]] = (
    ("connections", lambda metrics: sum(metrics.connack_sent)),
    ("sockets", lambda metrics: sum(metrics.connections_opened.values())),
    ("messages/received", lambda metrics: sum(metrics.packets_received)),
    ("messages/sent", lambda metrics: sum(metrics.packets_sent)),
    ("publish/received", lambda metrics: metrics.messages_received),
    ("publish/sent", lambda metrics: metrics.messages_delivered),
    ("publish/dropped", lambda metrics: metrics.messages_dropped),
    ("bytes/received", lambda metrics: metrics.bytes_received),
    ("bytes/sent", lambda metrics: metrics.bytes_sent),
)
"""Counters whose load is published; Mosquitto counts packets as messages here."""


@final
class SysTopics:
    """Keeps the averages and what was last published.

    Args:
        version: release of the broker.
        started_us: monotonic time of the start.
    """

    __slots__ = ("_clients_maximum", "_last", "_last_us", "_loads", "_started_us", "_version")

    def __init__(self, version: str, *, started_us: int) -> None:
        self._version = version
        self._started_us = started_us
        self._last_us = started_us
        self._clients_maximum = 0
        self._loads = [_Load(name, read) for name, read in LOADS]
        self._last: dict[str, str] = {}

    def values(
        self, metrics: Metrics, *, now_us: int, heap_bytes: int = 0
    ) -> list[tuple[str, str]]:
        """All topics with their values now; advances the averages.

        Args:
            metrics: the broker's counters.
            now_us: monotonic time.
            heap_bytes: memory of the process, bytes; 0 = not known.
        """
        elapsed_s = (now_us - self._last_us) / 1_000_000
        if elapsed_s > 0:
            self._last_us = now_us
            for load in self._loads:
                load.advance(metrics, elapsed_s)
        plain = self._plain(metrics, uptime_s=(now_us - self._started_us) // 1_000_000)
        found = [(f"{ROOT}/{name}", str(value)) for name, value in plain]
        if heap_bytes:
            found.append((f"{ROOT}/heap/current", str(heap_bytes)))
        for load in self._loads:
            found.extend(load.topics())
        return found

    def changes(
        self, metrics: Metrics, *, now_us: int, heap_bytes: int = 0
    ) -> list[tuple[str, str]]:
        """The topics whose value differs from the last call's (all of them at the first)."""
        found = self.values(metrics, now_us=now_us, heap_bytes=heap_bytes)
        changed = [(topic, value) for topic, value in found if self._last.get(topic) != value]
        self._last.update(changed)
        return changed

    def _plain(self, metrics: Metrics, *, uptime_s: int) -> list[tuple[str, int | str]]:
        connected = metrics.sessions_connected
        offline = metrics.sessions_offline
        self._clients_maximum = max(self._clients_maximum, connected + offline)
        return [
            ("version", f"perdure version {self._version}"),
            ("uptime", f"{uptime_s} seconds"),
            ("clients/connected", connected),
            ("clients/disconnected", offline),
            # Mosquitto's older names of the same two.
            ("clients/active", connected),
            ("clients/inactive", offline),
            ("clients/total", connected + offline),
            ("clients/maximum", self._clients_maximum),
            ("clients/expired", metrics.sessions_expired),
            ("messages/received", sum(metrics.packets_received)),
            ("messages/sent", sum(metrics.packets_sent)),
            ("messages/stored", metrics.storage_messages),
            ("store/messages/count", metrics.storage_messages),
            ("store/messages/bytes", metrics.storage_bytes),
            ("retained messages/count", metrics.retained_messages),
            ("subscriptions/count", metrics.subscriptions),
            ("shared_subscriptions/count", metrics.shared_subscriptions),
            ("publish/messages/received", metrics.messages_received),
            ("publish/messages/sent", metrics.messages_delivered),
            ("publish/messages/dropped", metrics.messages_dropped),
            ("publish/bytes/received", metrics.payload_bytes_received),
            ("publish/bytes/sent", metrics.payload_bytes_sent),
            ("bytes/received", metrics.bytes_received),
            ("bytes/sent", metrics.bytes_sent),
            *(_cluster(metrics) if metrics.cluster_members else ()),
        ]


def _cluster(metrics: Metrics) -> list[tuple[str, int | str]]:
    """What a node of a cluster has besides, as it has read the log; a second old at most."""
    return [
        ("cluster/members", metrics.cluster_members),
        ("cluster/position", metrics.cluster_position),
        ("cluster/end", metrics.cluster_position + metrics.cluster_lag),
        ("cluster/lag", metrics.cluster_lag),
        ("cluster/in_flight", metrics.cluster_in_flight),
        ("cluster/stalled", f"{metrics.cluster_stalled_seconds} seconds"),
    ]


@final
class _Load:
    """One counter's three averages, per minute."""

    __slots__ = ("_averages", "_name", "_previous", "_read")

    def __init__(self, name: str, read: Callable[[Metrics], int]) -> None:
        self._name = name
        self._read = read
        self._previous = 0
        self._averages = [0.0 for _ in PERIODS]

    def advance(self, metrics: Metrics, elapsed_s: float) -> None:
        current = self._read(metrics)
        rate = (current - self._previous) * 60.0 / elapsed_s
        self._previous = current
        for index, (_, period_s) in enumerate(PERIODS):
            kept = math.exp(-elapsed_s / period_s)
            self._averages[index] = rate + kept * (self._averages[index] - rate)

    def topics(self) -> list[tuple[str, str]]:
        return [
            (f"{ROOT}/load/{self._name}/{period}", f"{average:.2f}")
            for (period, _), average in zip(PERIODS, self._averages, strict=True)
        ]
