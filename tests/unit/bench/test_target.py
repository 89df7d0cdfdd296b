"""Targets know whose process they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port
from perdure.bench.process import BrokerProcess
from perdure.bench.target import Target


def test_a_broker_that_was_running_is_looked_at_by_its_pid() -> None:
    target = Target("127.0.0.1", 1, pid=os.getpid())
    assert target.probe is not None
    assert target.probe.pid == os.getpid()


def test_only_a_broker_of_our_own_restarts() -> None:
    target = Target("127.0.0.1", 1)
    assert target.probe is None
    assert target.goes_on
    with pytest.raises(BenchError, match="restarted"):
        target.restart()


@pytest.mark.slow
def test_a_broker_of_our_own_ends_unless_it_is_kept(tmp_path: Path) -> None:
    port = free_port()
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"
    process = BrokerProcess(
        [sys.executable, "-c", listen], host="127.0.0.1", port=port, directory=tmp_path
    )
    process.start()
    try:
        assert not Target("127.0.0.1", port, process=process).goes_on
        assert Target("127.0.0.1", port, process=process, goes_on=True).goes_on
    finally:
        process.stop()
