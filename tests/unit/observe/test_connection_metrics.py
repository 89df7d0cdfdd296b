"""What is counted of connections."""

from __future__ import annotations

import pytest

from perdure.observe.metrics import Metrics


def test_connections_rise_and_fall() -> None:
    metrics = Metrics()
    metrics.connection_opened("tcp", "5")
    metrics.connection_opened("tls", "4")
    metrics.connection_closed("tcp", "normal")
    assert metrics.connections_now == 1
    assert metrics.connections_maximum == 2
    assert metrics.connections_opened == {("tcp", "5"): 1, ("tls", "4"): 1}
    assert metrics.connections_closed == {("normal",): 1}
    with pytest.raises(AssertionError, match="more often"):
        metrics.connection_closed("tcp", "normal")
