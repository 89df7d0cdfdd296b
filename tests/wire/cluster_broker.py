"""Three nodes of a cluster as one broker: each connection goes to one of them by chance.

Kafka is the run's own (``tests.servers``), a log for each cluster. Nothing here may import
``perdure``.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, final

from tests import servers
from tests.wire.harness import Broker, Options
from tests.wire.process_broker import ProcessBroker
from tests.wire.transport import Transport

NODES: Final = 3


@final
class ClusterBroker(Broker):
    """Some nodes, each a process on a directory of its own.

    Args:
        directory: for their data, files and logs.
        options: how each is configured.
        seed: decides who connects where.
        advertise: whether nodes say where they are: at ``NAME.example:1883``.

    Attributes:
        nodes: the nodes.
    """

    def __init__(
        self, directory: Path, options: Options, *, seed: int = 0, advertise: bool = False
    ) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        name = servers.kafka_topic()
        self.nodes: list[ProcessBroker] = []
        for number in range(1, NODES + 1):
            own = directory / f"n{number}"
            own.mkdir()
            settings = {
                **options.settings,
                "node.name": f"n{number}",
                "cluster.name": name,
                "cluster.kafka": servers.kafka().servers,
            }
            if advertise:
                settings["node.advertise"] = f"n{number}.example:1883"
            self.nodes.append(ProcessBroker(own, replace(options, settings=settings)))

    def start(self) -> None:
        """Starts all nodes at once."""
        self._all("start")

    def stop(self) -> int:
        """Ends all nodes with SIGTERM at once; returns the worst exit code."""
        for node in self.nodes:
            node.terminate()
        for peer in self._peers:
            peer.wait_end()  # as clients of one broker do; else each node waits for its own
        return max(node.ended() for node in self.nodes)

    def kill9(self, *, start: bool = True) -> None:
        """Kills all nodes at once, as the one broker dies, and starts them again: which of them a
        client of a case is at, nobody knows. That one node dies is for ``tests/interop`` and
        ``tests/crash``."""
        for node in self.nodes:
            node.kill9(start=False)
        if start:
            self.start()

    def ensure_running(self) -> None:
        """Starts nodes again that a case before has lost."""
        for node in self.nodes:
            node.ensure_running()

    def close(self) -> None:
        """Ends all nodes."""
        self._all("close")

    def check_health(self) -> None:
        """Fails if a node died or met an unhandled exception."""
        for node in self.nodes:
            node.check_health()

    def elapse(self, seconds: float) -> None:
        """Lets real time pass."""
        self.nodes[0].elapse(seconds)

    def now_s(self) -> float:
        """Monotonic time of this machine."""
        return self.nodes[0].now_s()

    def now_us(self) -> int:
        """Wall time of this machine."""
        return self.nodes[0].now_us()

    def _transport(self) -> Transport:
        return self._chance.choice(self.nodes)._transport()

    def _all(self, what: str) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for _ in pool.map(lambda node: getattr(node, what)(), self.nodes):
                pass
