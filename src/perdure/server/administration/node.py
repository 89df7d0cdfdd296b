"""Operations on the broker as a whole: numbers, rates, their last hour, the nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

from perdure.admin.operation import Request
from perdure.admin.records.node import (
    ALL_NODES,
    GetHistory,
    GetMetrics,
    GetOverview,
    GetRates,
    GetStats,
    History,
    ListNodes,
    MetricsText,
    NodePage,
    Overview,
    Rates,
    Stats,
)
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.observe.metric_table import info, numbers
from perdure.observe.process_numbers import cpu_s, memory_bytes, open_files
from perdure.pure import build
from perdure.server.administration.history import Recorder
from perdure.server.administration.node_reports import STALLED_S, NodeReports
from perdure.server.administration.service import Call, Handler
from perdure.server.administration.stepped_exposition import SteppedExposition
from perdure.server.lifecycle import Phase

LOOK_US: Final = 2_000_000
"""An overview looks at all connected sessions itself if nobody has for so long. The gauges are kept
each second (``metrics_part.keep_gauges``), whoever asks."""

COUNT_US: Final = 1_000_000
"""Open files are counted no more often."""


@final
class NodeOperations:
    """Answers what is asked of the broker as a whole.

    Args:
        services: the parts of the broker.
        recorder: looks at the counters.
        reports: what the nodes of a cluster say of themselves.
        node: name of this node.
        version: release.
        started_us: wall time of the start.
        exposition: everything that is counted.
        phase: of the process.
    """

    def __init__(
        self,
        services: Services,
        recorder: Recorder,
        *,
        reports: NodeReports,
        node: str,
        version: str,
        started_us: int,
        exposition: SteppedExposition,
        phase: Callable[[], Phase] = lambda: "serving",
    ) -> None:
        self._phase = phase
        self._services = services
        self._recorder = recorder
        self._reports = reports
        self._node = node
        self._version = version
        self._started_us = started_us
        self._begun_us = services.clock.monotonic_us()
        self._exposition = exposition
        self._counted_us = -COUNT_US
        self._open_files: int | None = None

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {
            GetStats: self.stats,
            GetRates: self.rates,
            GetOverview: self.overview,
            GetHistory: self.history,
            GetMetrics: self.metrics,
            ListNodes: self.nodes,
        }

    async def stats(self, _request: GetStats, _call: Call) -> Stats:
        """What ``perdure status`` shows."""
        self._services.gauges.update()
        return Stats(**self._stats())

    async def rates(self, _request: GetRates, _call: Call) -> Rates:
        """Rates of the last ten seconds."""
        return self._recorder.rates()

    async def overview(self, request: GetOverview, _call: Call) -> Overview:
        """Numbers and rates together, of this node, of another one or of all."""
        if request.node in ("", self._node):
            return self.now()
        if request.node == ALL_NODES:
            return self._reports.total(self.now())
        return self._reports.overview_of(request.node)

    def now(self) -> Overview:
        """Of this node; what takes a look at all sessions as of a moment ago."""
        now_us = self._services.clock.monotonic_us()
        if now_us - self._services.gauges.updated_us >= LOOK_US:
            self._services.gauges.update()
        if now_us - self._counted_us >= COUNT_US:
            self._open_files, self._counted_us = open_files(), now_us
        now_us = self._services.clock.wall_us()
        memory = memory_bytes()
        metrics = self._services.metrics
        return Overview(
            **self._stats(),
            as_of=format_time(now_us),
            as_of_us=now_us,
            cluster_lag=metrics.cluster_lag if metrics.cluster_members else None,
            rates=self._recorder.rates(),
            open_files=self._open_files,
            memory_bytes=None if memory is None else memory[1],
            cpu_s=round(cpu_s(), 3),
            event_loop_lag_us=self._recorder.lag_us,
        )

    async def history(self, request: GetHistory, _call: Call) -> History:
        """The last hour, or a part of it, of this node, of another one or of all."""
        if request.node in ("", self._node):
            return self._recorder.history(request.seconds)
        if request.node == ALL_NODES:
            return self._reports.total_history(self._recorder.history(request.seconds))
        return self._reports.history_of(request.node, request.seconds)

    async def metrics(self, _request: GetMetrics, _call: Call) -> MetricsText:
        """All counters."""
        return MetricsText(await self._exposition.text())

    async def nodes(self, _request: ListNodes, _call: Call) -> NodePage:
        """This node, and what it has heard of the others of its cluster."""
        rows = self._reports.rows(self.now())
        return NodePage(items=rows, estimated_total=len(rows))

    def _stats(self) -> dict[str, Any]:
        services = self._services
        metrics = services.metrics
        return {
            "node": self._node,
            "phase": self._phase(),
            "version": self._version,
            "build": build(),
            "started_at": format_time(self._started_us),
            "started_at_us": self._started_us,
            "uptime_s": (services.clock.monotonic_us() - self._begun_us) // 1_000_000,
            "storage": self._storage(),
            "storage_reason": self._storage_reason(),
            "connections": metrics.connections_now,
            "sessions_connected": metrics.sessions_connected,
            "sessions_offline": metrics.sessions_offline,
            "subscriptions": metrics.subscriptions + metrics.subscriptions_offline,
            "subscriptions_connected": metrics.subscriptions,
            "subscriptions_offline": metrics.subscriptions_offline,
            "inflight_messages": metrics.inflight_messages,
            "pending_messages": metrics.pending_messages,
            "shared_groups": metrics.shared_groups,
            "retained_messages": metrics.retained_messages,
            "retained_bytes": metrics.retained_bytes,
            "messages_received": metrics.messages_received,
            "messages_delivered": metrics.messages_delivered,
            "messages_dropped": metrics.messages_dropped,
            "messages_dropped_by": {
                reason: count for (reason,), count in numbers(metrics, info("messages_dropped"))
            },
            "log_messages": metrics.storage_messages,
            "log_bytes": metrics.storage_bytes,
            "generations": metrics.storage_generations,
        }

    def _storage(self) -> str:
        """``ok``, ``refusing`` (the disk budget is used up), ``stalled`` (the log of the cluster
        takes nothing) or ``failed``."""
        if not self._services.committer.writable:
            return "failed"
        if self._services.metrics.cluster_stalled_seconds >= STALLED_S:
            return "stalled"
        return "refusing" if self._services.publish_path.disk_full else "ok"

    def _storage_reason(self) -> str:
        """Why it is not ``ok``, or cannot keep to its budget."""
        stalled_s = self._services.metrics.cluster_stalled_seconds
        if stalled_s >= STALLED_S:
            return f"Kafka has taken nothing for {stalled_s} s"
        return self._services.committer.failure_text or self._services.retention.disk_over
