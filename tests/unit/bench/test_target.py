"""Targets know whose process they are."""

from __future__ import annotations

import os

import pytest

from perdure.bench.errors import BenchError
from perdure.bench.target import Target


def test_a_broker_that_was_running_is_looked_at_by_its_pid() -> None:
    target = Target("127.0.0.1", 1, pid=os.getpid())
    assert target.probe is not None
    assert target.probe.pid == os.getpid()


def test_only_a_broker_of_our_own_restarts() -> None:
    target = Target("127.0.0.1", 1)
    assert target.probe is None
    with pytest.raises(BenchError, match="restarted"):
        target.restart()
