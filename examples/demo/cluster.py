"""Three nodes on three Kafka brokers as the broker under test, behind one port."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final, final

from tests.support.cluster_processes import ClusterProcesses
from tests.support.tcp_proxy import TcpProxy

OUTAGE_MAX: Final = "storage.outage_max=20s"


@final
class ClusterBroker:
    """A cluster, with what stands in front of it: each connection goes to a node that lives.

    Args:
        directory: for data and output.
        seed: decides who connects where, and who dies.

    Attributes:
        kills: what the kills take, in their order.
        kill_count: kills so far.
        listening: set while a node can be reached.
        port: where clients connect.
    """

    kills: tuple[str, ...] = ("a node", "a Kafka broker", "all nodes and all of Kafka")

    def __init__(self, directory: Path, seed: str) -> None:
        self._chance = random.Random(seed)
        self._cluster = ClusterProcesses(directory, self._chance, [OUTAGE_MAX], is_direct=True)
        self._front = TcpProxy(self._cluster.place())
        self._is_open = False
        self.kill_count = 0
        self.listening = asyncio.Event()
        self.port = self._front.port

    async def start(self) -> float:
        """Start what does not run; returns the seconds that took."""
        if not self._is_open:
            self._is_open = True
            await self._cluster.open()
            await self._front.start()
        took_s = await self._cluster.start()
        self.listening.set()
        return took_s

    async def kill(self) -> None:
        """kill -9 of what is next in ``kills``."""
        what = self.kill_count % len(self.kills)
        self.kill_count += 1
        cluster = self._cluster
        if what == 0:
            await cluster.kill_node(self._chance.choice(cluster.nodes))
        elif what == 1:
            self._chance.choice(cluster.kafka.brokers).kill()
        else:
            self.listening.clear()
            await cluster.kill()
            for broker in cluster.kafka.brokers:
                broker.kill()

    async def stop(self) -> None:
        """End everything in order."""
        self.listening.clear()
        if self._is_open:
            await self._cluster.stop()
            await self._front.stop()
            await self._cluster.close()

    def check(self) -> None:
        """Raise ``ProcessError`` if a node that should run does not."""
        self._cluster.check()
