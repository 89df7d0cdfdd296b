"""Prometheus over HTTP as a part of the process's life, and the gauges behind it."""

from __future__ import annotations

import asyncio
from typing import Final, final

from perdure.broker.services import Services
from perdure.net.settings import split_bind
from perdure.observe.metrics import Metrics
from perdure.observe.prometheus import MetricsServer, make_registry

GAUGE_INTERVAL_S: Final = 1.0
"""States (pending messages, log size) are brought up to date this often: the exporter runs in a
thread of its own and must not walk the broker's tables."""

METRICS_PORT: Final = 9090


@final
class MetricsPart:
    """Serves ``/metrics``.

    Args:
        metrics: the broker's counters.
        bind: ``host:port``.
        version: release, for ``build_info``.
        backend: storage backend, for ``build_info``.
    """

    name: str = "metrics"

    def __init__(self, metrics: Metrics, *, bind: str, version: str, backend: str) -> None:
        self._host, self._port = split_bind(bind, METRICS_PORT, path="metrics.bind")
        self._registry = make_registry(metrics, version=version, backend=backend)
        self._server: MetricsServer | None = None

    async def start(self) -> None:
        """Listen; raises ConfigError if the address cannot be had."""
        self._server = MetricsServer.start(self._registry, self._host, self._port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
            self._server = None


async def keep_gauges(services: Services) -> None:
    """Bring the gauges up to date and measure how late the event loop is, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + GAUGE_INTERVAL_S
        await asyncio.sleep(GAUGE_INTERVAL_S)
        lag_us = max(0, round((loop.time() - due) * 1_000_000))
        services.metrics.event_loop_lag_seconds.observe(lag_us)
        services.gauges()
