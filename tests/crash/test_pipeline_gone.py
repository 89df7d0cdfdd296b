"""What a broker's own metrics tell of a pipeline whose process is gone."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from perdure.clock import SystemClock
from perdure.storage.pipeline_runs import PipelineRun, RunState, save_report
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000


def metrics_of(port: int) -> dict[str, float]:
    """Its metrics by name."""
    url = f"http://127.0.0.1:{port}/metrics"
    text = urllib.request.urlopen(url, timeout=HANG_S).read().decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, value in lines}


async def test_the_broker_goes_on_telling_of_it(tmp_path: Path) -> None:
    now_us = SystemClock().now_us()
    state = RunState(behind_us=7_000_000)
    state.schedule({"archive": 60.0}, now_us - HOUR_US)
    state.written_at_us = now_us - HOUR_US
    data = tmp_path / "data"
    data.mkdir()
    save_report(data, PipelineRun("archive", "/lake", state))
    mqtt, port = free_port(), free_port()
    command = perdure_command(data, mqtt, "--set", f"metrics.bind=127.0.0.1:{port}")
    broker = BrokerProcess(command, port=mqtt, log=tmp_path / "log")
    await broker.start()
    try:
        here = 'pipeline="archive",place="/lake"'
        late = 'pipeline="archive",pipeline_job="archive",place="/lake"'
        async with asyncio.timeout(HANG_S):
            while f"perdure_pipelines_late_seconds{{{late}}}" not in (found := metrics_of(port)):
                await asyncio.sleep(0.05)
        assert found[f"perdure_pipelines_behind_seconds{{{here}}}"] == 7
        assert 3_600 <= found[f"perdure_pipelines_silent_seconds{{{here}}}"] < 3_600 + HANG_S
        assert 3_600 <= found[f"perdure_pipelines_late_seconds{{{late}}}"] < 3_600 + HANG_S
    finally:
        await broker.stop()
