"""The broker that a run measures: where it is, and what is known of its process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from perdure.bench.applied import AppliedProbe
from perdure.bench.errors import BenchError
from perdure.bench.process import BrokerProcess, ProcessProbe


@final
class Target:
    """The broker to measure.

    Args:
        host, port: where it listens.
        process: the one that the tool started; it can be restarted.
        pid: of a broker that runs already.
        username, password: for every client.
        node_pids: of the nodes of a cluster, in their order, as far as they run here.
        node_metrics: what says of those nodes what they have applied, as far as it is known.
        goes_on: it is not ended after the run, so what the run made is taken away again; None =
            unless the tool started it.

    Attributes:
        node_probes: of ``node_pids``.
        node_metrics: as it was given.
        is_laid: what the settings want idle in it was laid down by an earlier run.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        process: BrokerProcess | None = None,
        pid: int | None = None,
        username: str | None = None,
        password: bytes | None = None,
        node_pids: Sequence[int] = (),
        node_metrics: Sequence[AppliedProbe] = (),
        goes_on: bool | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.process = process
        self.username = username
        self.password = password
        self.goes_on = process is None if goes_on is None else goes_on
        self.is_laid = False
        self._pid = pid
        self.node_probes = [ProcessProbe(each) for each in node_pids]
        self.node_metrics = node_metrics
        self.probe = self._new_probe()

    def restart(self) -> float:
        """Kill the broker and start it again; returns the seconds until it listened."""
        if self.process is None:
            raise BenchError("only a broker that the tool started can be restarted")
        seconds = self.process.restart(kill=True)
        self.probe = self._new_probe()
        return seconds

    def _new_probe(self) -> ProcessProbe | None:
        pid = self.process.pid if self.process else self._pid
        return None if pid is None else ProcessProbe(pid)
