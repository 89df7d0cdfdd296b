"""Three nodes on three Kafka brokers, all of them processes, with a way between each two of them.

What each fault is to a client is one broker, so it is one here: it starts, stops and is killed as
``process.BrokerProcess`` is.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port
from tests.support.kafka import QUICK_JVM, KafkaBroker, KafkaCluster
from tests.support.process import BrokerProcess, ProcessError
from tests.support.stepped_clock import set_step
from tests.support.tcp_proxy import TcpProxy

NODES: Final = 3
CLUSTER: Final = "chaos"
DEAD_AFTER_S: Final = 3
KAFKA_TRIES: Final = 3


@final
class ClusterNodeProcess:
    """One node: its process, its ways to Kafka, and its clock.

    Args:
        number: from 1.
        directory: for its data and output.
        ways: to each Kafka broker, if it goes there by any.
        settings: ``name=value``, besides those of the cluster.
        servers: as ``cluster.kafka``.
        has_http: whether it has its HTTP interface.
        has_metrics: whether it tells its metrics.

    Attributes:
        http_port, metrics_port: where those are; 0 = nowhere.
        name: as ``node.name``.
        data: its data directory.
        ways: to each Kafka broker.
        is_wanted: it should run.
        is_paused: it was stopped where it stands.
    """

    def __init__(
        self,
        number: int,
        directory: Path,
        ways: Sequence[TcpProxy],
        settings: Sequence[str],
        servers: str,
        *,
        has_http: bool = False,
        has_metrics: bool = False,
    ) -> None:
        self.name = f"n{number}"
        self.data = directory / self.name
        self.ways = tuple(ways)
        self.is_wanted = self.is_paused = False
        self._clock = directory / f"{self.name}.clock"
        self.log = directory / f"{self.name}.log"
        self.step_clock(0)
        port = free_port()
        self.http_port = free_port() if has_http else 0
        self.metrics_port = free_port() if has_metrics else 0
        options = (
            f"node.name={self.name}",
            f"node.advertise=127.0.0.1:{port}",
            f"cluster.name={CLUSTER}",
            f"cluster.kafka={servers}",
            f"cluster.dead_after={DEAD_AFTER_S}s",
            *([f"http.bind=127.0.0.1:{self.http_port}"] if has_http else []),
            *([f"metrics.bind=127.0.0.1:{self.metrics_port}"] if has_metrics else []),
            *settings,
        )
        command = [sys.executable, "-m", "tests.support.stepped_clock", str(self._clock), "serve"]
        command += ["--data", str(self.data), "--bind", f"127.0.0.1:{port}"]
        command += [part for option in options for part in ("--set", option)]
        self.process = BrokerProcess(command, port=port, log=self.log)

    def step_clock(self, seconds: float) -> None:
        """Set its wall clock this far ahead of the machine's."""
        set_step(self._clock, seconds)

    async def spawn(self) -> None:
        """Start it without waiting."""
        self.is_wanted = True
        await self.process.spawn()

    async def kill(self) -> None:
        """kill -9."""
        self.is_wanted = False
        await self.process.kill()

    async def stop(self) -> int | None:
        """SIGTERM."""
        self.resume()
        self.is_wanted = False
        return await self.process.stop()

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT, if it stands still."""
        if self.is_paused:
            self.process.signal(signal.SIGCONT)
            self.is_paused = False


@final
class ClusterProcesses:
    """All of them. ``open`` comes first, ``close`` last.

    Args:
        directory: for data and output.
        chance: decides where a connection goes.
        settings: of each node, ``name=value``.
        is_direct: nodes talk to Kafka itself; there is no way that could be cut.
        has_http: whether the first node has its HTTP interface.
        has_metrics: whether each node tells its metrics.
        jvm: options of Java for Kafka's machines.

    Attributes:
        kill_count: processes of nodes that were killed.
        nodes, kafka: what can fail.
    """

    def __init__(
        self,
        directory: Path,
        chance: random.Random,
        settings: Sequence[str],
        *,
        is_direct: bool = False,
        has_http: bool = False,
        has_metrics: bool = False,
        jvm: Sequence[str] = QUICK_JVM,
    ) -> None:
        self.kill_count = 0
        self.kafka = KafkaCluster(3, jvm=jvm)
        self._chance = chance
        self._ways: list[list[TcpProxy]] = [[] for _ in range(NODES)]
        for broker in () if is_direct else self.kafka.brokers:
            self._open_ways(broker)
        self.nodes = [
            ClusterNodeProcess(
                number,
                directory,
                ways,
                settings,
                ",".join(f"127.0.0.1:{way.port}" for way in ways) or self.kafka.servers,
                has_http=has_http and number == 1,
                has_metrics=has_metrics,
            )
            for number, ways in enumerate(self._ways, 1)
        ]

    def _open_ways(self, broker: KafkaBroker) -> None:
        """A listener for each node: it tells its clients the addresses of that node's ways."""
        listens = [
            f"PLAINTEXT://{broker.address}",
            f"CONTROLLER://127.0.0.1:{broker.controller_port}",
        ]
        tells = [f"PLAINTEXT://{broker.address}"]
        kinds = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        for number, ways in enumerate(self._ways, 1):
            port = free_port()
            way = TcpProxy(port)
            ways.append(way)
            listens.append(f"N{number}://127.0.0.1:{port}")
            tells.append(f"N{number}://127.0.0.1:{way.port}")
            kinds.append(f"N{number}:PLAINTEXT")
        broker.options = {
            **broker.options,
            "listeners": ",".join(listens),
            "advertised.listeners": ",".join(tells),
            "listener.security.protocol.map": ",".join(kinds),
            "inter.broker.listener.name": "PLAINTEXT",
        }

    async def open(self) -> None:
        """Start Kafka and the ways to it."""
        await asyncio.to_thread(self.kafka.start)
        for node in self.nodes:
            for way in node.ways:
                await way.start()

    async def close(self) -> None:
        """End everything."""
        for node in self.nodes:
            node.resume()
            if node.is_wanted:
                await node.kill()
            for way in node.ways:
                await way.stop()
        await asyncio.to_thread(self.kafka.close)

    def place(self) -> Callable[[], int]:
        """Each connection goes to one of those that should be there."""
        return lambda: (
            self._chance.choice(
                [node for node in self.nodes if node.is_wanted] or self.nodes
            ).process.port
        )

    async def start(self) -> float:
        """Undo every fault but those of clocks, and wait until all nodes listen."""
        begun_s = time.monotonic()
        for node in self.nodes:
            node.resume()
            for way in node.ways:
                way.delay_s = 0.0
                way.mend()
        await self.start_kafka()
        await self.spawn()
        for node in self.nodes:
            await self.until_listening(node)
        return time.monotonic() - begun_s

    async def start_kafka(self) -> None:
        """Start the Kafka brokers that do not run.

        Raises:
            BenchError: one does not start, again and again.
        """

        def start() -> None:
            down = [broker for broker in self.kafka.brokers if not broker.is_running]
            for broker in down:
                broker.begin()
            for broker in down:
                broker.wait()

        for left in reversed(range(KAFKA_TRIES)):
            try:
                await asyncio.to_thread(start)
            except BenchError:  # on a busy machine it takes elections for lost, and ends
                if not left:
                    raise
            else:
                return

    async def spawn(self) -> None:
        """Start the nodes that do not run, without waiting."""
        for node in self.nodes:
            await self.spawn_node(node)

    async def spawn_node(self, node: ClusterNodeProcess) -> None:
        """Start one if it does not run, without waiting."""
        if not node.is_wanted:
            await node.spawn()

    async def until_listening(self, node: ClusterNodeProcess, *, timeout_s: float = 180.0) -> None:
        """Wait for a node.

        Raises:
            ProcessError: it ended, or does not listen in time.
        """
        end_s = time.monotonic() + timeout_s
        while not await node.process._listens():
            node.process.check()
            if time.monotonic() > end_s:
                raise ProcessError(f"{node.name} does not listen:\n{node.process.log_tail()}")
            await asyncio.sleep(0.02)

    async def stop(self) -> int | None:
        """End the nodes in order; returns the worst exit code."""
        codes = await asyncio.gather(*(node.stop() for node in self.nodes))
        return max((code if code is not None else 0 for code in codes), key=abs)

    async def kill(self) -> None:
        """Kill -9 of all nodes."""
        for node in self.nodes:
            if node.is_wanted:
                await self.kill_node(node)

    async def kill_node(self, node: ClusterNodeProcess) -> None:
        """Kill -9 of one."""
        await node.kill()
        self.kill_count += 1

    def check(self) -> None:
        """Raise ``ProcessError`` if one that should run does not."""
        for node in self.nodes:
            if node.is_wanted:
                node.process.check()

    def log_tail(self) -> str:
        """The last lines of each node's output."""
        return "\n".join(f"{node.name}:\n{node.process.log_tail()}" for node in self.nodes)

    async def verify(self) -> list[str]:
        """``perdure cluster verify``: the digests, which must be equal."""
        place = ["--kafka", self.kafka.servers, "--name", CLUSTER]
        directories = [str(node.data) for node in self.nodes]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "cluster", "verify", *place, *directories, "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        shown, said = await process.communicate()
        try:
            rows = json.loads(shown)
        except ValueError:
            raise ProcessError(f"cluster verify: {said.decode()}") from None
        return [str(row["digest"]) for row in rows]
