"""The ``$SYS/broker/`` topics under Mosquitto's names, computed from ``Metrics``.

What there is stands in ``sys_topic_table``. The caller publishes what this returns and asks again
every ``sys.interval_s``; time is an argument. Load averages are Mosquitto's: the rate per minute of
the last interval, smoothed exponentially over 1, 5 and 15 minutes.
"""

from __future__ import annotations

import math
from typing import final

from perdure.observe.metrics import Metrics
from perdure.observe.sys_topic_table import LOADS, PERIODS, ROOT, TOPICS, LoadOf, Look, sessions


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
        self._loads = [_Load(each) for each in LOADS]
        self._last: dict[str, str] = {}

    def values(self, metrics: Metrics, *, now_us: int) -> list[tuple[str, str]]:
        """All topics with their values now; advances the averages.

        Args:
            metrics: the broker's counters.
            now_us: monotonic time.
        """
        elapsed_s = (now_us - self._last_us) / 1_000_000
        if elapsed_s > 0:
            self._last_us = now_us
            for load in self._loads:
                load.advance(metrics, elapsed_s)
        self._clients_maximum = max(self._clients_maximum, sessions(metrics))
        uptime_s = (now_us - self._started_us) // 1_000_000
        look = Look(metrics, self._version, uptime_s, self._clients_maximum)
        found = [
            (f"{ROOT}/{each.name}", str(each.read(look)))
            for each in TOPICS
            if metrics.cluster_members or not each.is_clusters
        ]
        for load in self._loads:
            found.extend(load.topics())
        return found

    def changes(self, metrics: Metrics, *, now_us: int) -> list[tuple[str, str]]:
        """The topics whose value differs from the last call's (all of them at the first)."""
        found = self.values(metrics, now_us=now_us)
        changed = [(topic, value) for topic, value in found if self._last.get(topic) != value]
        self._last.update(changed)
        return changed


@final
class _Load:
    """One counter's three averages, per minute."""

    __slots__ = ("_averages", "_name", "_previous", "_read")

    def __init__(self, load: LoadOf) -> None:
        self._name = load.name
        self._read = load.read
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
