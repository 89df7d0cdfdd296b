"""Prometheus over HTTP as a part of the process's life, and the gauges behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from perdure.broker.services import Services
from perdure.config.schema import MetricsConfig
from perdure.net.settings import split_bind
from perdure.net.sockets import is_loopback, open_listening
from perdure.observe.instruments import add
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.observe.metrics_server import MetricsServer
from perdure.observe.metrics_text import MetricsText
from perdure.server.turns import Turns
from perdure.web.tokens import Tokens, read_tokens

log = get_logger("metrics")

GAUGE_INTERVAL_S: Final = 1.0
"""States (pending messages, log size) are brought up to date this often: the exporter runs in a
thread of its own and must not walk the broker's tables."""

METRICS_PORT: Final = 9090
TOKEN_SETTING: Final = "metrics.token_file"  # noqa: S105 - the name of a setting
BACKLOG: Final = 128


@final
class MetricsPart:
    """Serves ``/metrics``.

    Args:
        metrics: the broker's counters.
        config: the section ``metrics``.
        text: writes them.
    """

    name: str = "metrics"

    def __init__(self, metrics: Metrics, config: MetricsConfig, text: MetricsText) -> None:
        self._metrics = metrics
        self._config = config
        self._host, self._port = split_bind(config.bind, METRICS_PORT, path="metrics.bind")
        self._text = text
        self._server: MetricsServer | None = None

    @property
    def port(self) -> int:
        """The port in use (the real one if 0 was asked for)."""
        assert self._server is not None
        return self._server.port

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be had, or the tokens cannot be read.
        """
        knows: Callable[[str], bool] | None = None
        if self._config.token_file:
            path = Path(self._config.token_file)
            read_tokens(path, setting=TOKEN_SETTING)
            knows = Tokens(path, setting=TOKEN_SETTING).knows
        elif self._host and not is_loopback(self._host):
            log.warning(
                "metrics.open",
                bind=self._config.bind,
                hint="everybody who reaches the address may read; see metrics.token_file",
            )
        sockets = open_listening(self._host, self._port, backlog=BACKLOG, path="metrics")
        self._server = MetricsServer(
            sockets, self._text, self._config, knows=knows, count=self._count
        )
        log.info("metrics.started", port=self.port, token=knows is not None)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
            self._server = None

    def _count(self, status: str) -> None:
        add(self._metrics.metrics_requests, (status,))


async def keep_gauges(services: Services) -> None:
    """Bring the gauges up to date and measure how late the event loop is, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + GAUGE_INTERVAL_S
        await asyncio.sleep(GAUGE_INTERVAL_S)
        lag_us = max(0, round((loop.time() - due) * 1_000_000))
        services.metrics.event_loop_lag_seconds.observe(lag_us)
        turns = Turns()
        for _ in services.gauges.steps():
            await turns.step()
