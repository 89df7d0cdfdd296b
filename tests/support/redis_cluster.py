"""Three Redis masters of our own that share the slots of a cluster, and their resharding."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Final, final

from perdure.bench.child import wait_until
from perdure.bench.errors import BenchError
from perdure.storebench.servers.server import Managed
from tests.support.database_servers import RedisServer

CLUSTER_SLOTS: Final = 16_384
_MASTERS: Final = 3


@final
class RedisCluster(Managed):
    """Three masters that share the slots, without replicas; a context manager.

    Args:
        appendfsync, settings: as of ``RedisServer``.
    """

    def __init__(
        self, *, appendfsync: str = "always", settings: Mapping[str, str] | None = None
    ) -> None:
        self.password = secrets.token_urlsafe(24)
        self.nodes = [
            RedisServer(
                appendfsync=appendfsync, settings=settings, password=self.password, cluster=True
            )
            for _ in range(_MASTERS)
        ]

    @property
    def url(self) -> str:
        """``redis+cluster://`` of the first node."""
        return "redis+cluster" + self.nodes[0].url.removeprefix("redis").removesuffix("/0")

    def start(self) -> float:
        """Start the nodes, give each its share of the slots, and wait until they agree.

        Returns:
            The seconds that took.

        Raises:
            BenchError: a node does not start, or they do not agree in time.
        """
        begun = time.monotonic()
        for node in self.nodes:
            node.start()
        edges = [index * CLUSTER_SLOTS // _MASTERS for index in range(_MASTERS + 1)]
        for index, node in enumerate(self.nodes):
            node.command("CLUSTER", "ADDSLOTSRANGE", edges[index], edges[index + 1] - 1)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        first = self.nodes[0]
        for node in self.nodes[1:]:
            bus_port = _bus_port(node)
            first.command("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        self.wait_agreed()
        return time.monotonic() - begun

    def wait_agreed(self) -> None:
        """Wait until every node knows an owner of every slot.

        Raises:
            BenchError: they do not agree in time.
        """
        wait_until(
            self._agree,
            timeout_s=RedisServer.START_TIMEOUT_S,
            complaint="the nodes of the Redis cluster do not agree",
        )

    def node_id(self, node: RedisServer) -> str:
        """The name of a node within the cluster."""
        reply = node.command("CLUSTER", "MYID")
        assert isinstance(reply, bytes)
        return reply.decode()

    def owner_of(self, slot: int) -> RedisServer:
        """The node that has a slot now."""
        ranges = self.nodes[0].command("CLUSTER", "SLOTS")
        assert isinstance(ranges, list)
        for first, last, (_, port, *_), *_ in ranges:  # type: ignore[misc]
            if first <= slot <= last:  # type: ignore[operator]
                return next(node for node in self.nodes if node.port == port)
        raise BenchError(f"nobody has slot {slot}")

    def move_slots(self, slots: Iterable[int], source: RedisServer, target: RedisServer) -> None:
        """Move slots with their keys from node to node while clients go on, as a reshard does."""
        source_id, target_id = self.node_id(source), self.node_id(target)
        with contextlib.ExitStack() as stack:
            ask = {node: stack.enter_context(node.session()) for node in self.nodes}
            for slot in slots:
                ask[target]("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
                ask[source]("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
                while keys := ask[source]("CLUSTER", "GETKEYSINSLOT", slot, 10):
                    assert isinstance(keys, list)
                    ask[source](
                        *("MIGRATE", "127.0.0.1", target.port, "", 0, 10_000),
                        *("AUTH", self.password, "KEYS", *keys),
                    )
                # The new owner first: a moment without an owner would refuse writes.
                for node in (target, source, *self.nodes):
                    ask[node]("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def close(self) -> None:
        """Stop the nodes and delete their folders."""
        for node in self.nodes:
            node.close()

    def _agree(self) -> bool:
        for node in self.nodes:
            reply = node.command("CLUSTER", "INFO")
            assert isinstance(reply, bytes)
            known = f"cluster_known_nodes:{_MASTERS}".encode()
            if b"cluster_state:ok" not in reply or known not in reply:
                return False
        return True


def _bus_port(node: RedisServer) -> int:
    reply = node.command("CONFIG", "GET", "cluster-port")
    assert isinstance(reply, list)
    value = reply[1]
    assert isinstance(value, bytes)
    return int(value)
