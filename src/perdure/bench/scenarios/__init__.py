"""What can be measured: one module for each kind of load, a table of them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from perdure.bench.result import Phase
from perdure.bench.runner import Run
from perdure.bench.scenarios import cluster, connections, offline, replay, traffic

Scenario = Callable[[Run], list[Phase]]

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "conn": connections.conn,
    "p2p": traffic.p2p,
    "fanin": traffic.fanin,
    "fanout": traffic.fanout,
    "offline": offline.offline,
    "replay": replay.replay,
    "idle": connections.idle,
    "cluster": cluster.cluster,
}
"""Scenarios by name."""
