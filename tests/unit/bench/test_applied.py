"""What a node has applied is read from its metrics, and what cannot be read is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from perdure.bench.applied import AppliedProbe
from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port
from perdure.bench.result import Phase
from perdure.bench.scenarios.cluster import tell_applied
from perdure.config.schema import MetricsConfig
from perdure.observe import Metrics
from perdure.observe.metrics_text import MetricsText
from perdure.server.metrics_part import MetricsPart

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def url(metrics: Metrics, tmp_path: Path) -> AsyncIterator[str]:
    """Where a node's real metrics are, for who has the token."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    config = MetricsConfig(bind="127.0.0.1:0", token_file=str(tokens), cache_ms=0)
    part = MetricsPart(metrics, config, MetricsText(metrics, version="1", backend="memory"))
    await part.start()
    yield f"http://127.0.0.1:{part.port}/metrics"
    await part.stop()


async def test_a_phase_has_what_a_message_cost_to_apply(url: str, metrics: Metrics) -> None:
    """In it, not in the time before; of a node that has applied nothing nothing is told."""
    probe = AppliedProbe(url, TOKEN)
    metrics.cluster_applied_messages = 5_000
    metrics.cluster_apply_cpu_seconds.observe(100_000)
    before = await asyncio.to_thread(probe.look)
    metrics.cluster_applied_messages += 1_000
    metrics.cluster_apply_cpu_seconds.observe(1_500)
    metrics.cluster_apply_cpu_seconds.observe(500)
    after = await asyncio.to_thread(probe.look)
    phase = Phase(name="local", seconds=8.0, done=7, done_per_s=1.0)
    tell_applied(phase, [before, before], [before, after])
    assert phase.extra == {"node2_apply_us": pytest.approx(2.0)}


async def test_who_does_not_answer_is_named(url: str) -> None:
    with pytest.raises(BenchError, match=r"/metrics: HTTP Error 401"):
        await asyncio.to_thread(AppliedProbe(url).look)


class OfOthers(BaseHTTPRequestHandler):
    """Metrics that are no broker's."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# TYPE up gauge\nup 1\n")


def test_what_cannot_be_asked() -> None:
    with HTTPServer(("127.0.0.1", 0), OfOthers) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(BenchError, match="no metrics of a cluster's node"):
            AppliedProbe(f"http://127.0.0.1:{server.server_port}/").look()
    with pytest.raises(BenchError, match="not the address of metrics"):
        AppliedProbe("n1:9100")
    nobody = f"http://127.0.0.1:{free_port()}/metrics"
    with pytest.raises(BenchError, match=nobody):
        AppliedProbe(nobody).look()
