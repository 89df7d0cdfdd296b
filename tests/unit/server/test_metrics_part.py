"""Prometheus as a part of the process: its address, its token, its words."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from perdure.config.schema import MetricsConfig
from perdure.errors import AddressUnavailable, ConfigError
from perdure.observe import Metrics
from perdure.observe.metrics_text import MetricsText
from perdure.server.metrics_part import MetricsPart

TOKEN = "0123456789abcdef0123456789abcdef"


def part(metrics: Metrics | None = None, **settings: object) -> MetricsPart:
    config = MetricsConfig(**{"bind": "127.0.0.1:0", **settings})  # type: ignore[arg-type]
    counted = metrics or Metrics()
    return MetricsPart(counted, config, MetricsText(counted, version="1", backend="memory"))


async def ask(port: int, token: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer.split(" ")[1]


async def test_tokens_of_a_file_that_may_change(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    metrics = Metrics()
    made = part(metrics, token_file=str(file))
    await made.start()
    try:
        assert await ask(made.port, TOKEN) == "200"
        assert await ask(made.port, TOKEN[1:]) == "401"
        file.write_text(f"{TOKEN}x\n")
        assert await ask(made.port, TOKEN) == "401"
        assert await ask(made.port, f"{TOKEN}x") == "200"
    finally:
        await made.stop()
    assert metrics.metrics_requests == {("200",): 2, ("401",): 2}


async def test_what_cannot_work_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the tokens") as caught:
        await part(token_file=str(tmp_path / "none")).start()
    assert caught.value.path == "metrics.token_file"
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(AddressUnavailable, match="cannot listen") as caught,
    ):
        await part(bind=f"127.0.0.1:{taken.getsockname()[1]}").start()
    assert caught.value.path == "metrics.bind"
