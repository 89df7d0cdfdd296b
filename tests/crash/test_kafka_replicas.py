"""Three nodes with RocksDB on three real Kafka brokers: equal stores, whatever dies meanwhile.

Each node submits and hears of all; a Kafka leader is killed, a node's process ends in the middle
(its log is closed and its store opened again), another node reads its expulsion and comes back. In
the end all hold the same, and what was acknowledged is there once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, final

import pytest
import pytest_asyncio
from confluent_kafka.admin import AdminClient

from perdure.model import Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.kafka import KafkaLog, KafkaSettings
from perdure.storage.ordered.contract import OrderedLog
from perdure.storage.ordered.digest import digest
from perdure.storage.ordered.record import ANYHOW, Expel
from perdure.storage.ordered.replica import Replica
from perdure.storage.rocksdb import RocksDatabase
from tests import servers
from tests.support.bounds import HANG_S
from tests.support.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROUND = 150
PAYLOAD = b"x" * 200


@final
class LoopGate:
    """A gate of the event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def open(self) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._event.wait().__await__()


@final
class Node:
    """A node, its store and what it knows of its batches.

    Attributes:
        sent: payloads that it has submitted.
        acknowledged: those that it would have answered.
    """

    def __init__(self, settings: KafkaSettings, name: str, path: Path, numbers: Any) -> None:
        self._settings = settings
        self.name = name
        self._path = path
        self._numbers = numbers
        self.sent: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self._waiting: list[Batch] = []
        self._changed = asyncio.Event()
        self.replica: Replica
        self.local: RocksDatabase

    async def start(self) -> None:
        """The process, or the next one."""
        self.local = RocksDatabase.open(self._path)
        self.replica = Replica(
            self.local,
            self._open_log,
            node=self.name,
            incarnation=lambda: next(self._numbers),
            later=asyncio.get_running_loop().call_soon,
            gate=LoopGate,
            cpu_us=lambda: 0,
        )
        self.replica.on_sequenced = self._acknowledge
        self._waiting = []
        await self.replica.open()

    async def _open_log(self) -> OrderedLog:
        return await KafkaLog.open(self._settings)

    async def end(self) -> None:
        """The process ends as it stands."""
        await self.replica.shut()
        self.local.close()

    def _acknowledge(self) -> None:
        while self._waiting and self._waiting[0].is_sequenced:
            batch = self._waiting.pop(0)
            self.acknowledged += [message.payload for message in batch.messages]
        self._changed.set()

    def submit(self) -> None:
        """Some messages and a session's record."""
        batch = Batch()
        for _ in range(3):
            payload = b"%s %d " % (self.name.encode(), next(self._numbers)) + PAYLOAD
            self.sent.append(payload)
            batch.append(Message(f"t/{self.name}", payload, 1))
        batch.put_session(
            SessionRecord(
                "shared", next(self._numbers), 1, 0xFFFF_FFFF, connected=True, changed_at_us=1
            )
        )
        self._waiting.append(batch)
        self.replica.submit(batch, 0)

    async def run(self, count: int) -> None:
        """Submit so many batches, a few at a time, until all are acknowledged."""
        for _ in range(count):
            self.submit()
            while len(self._waiting) > 20:
                self._changed.clear()
                await self._changed.wait()
        while self._waiting:
            self._changed.clear()
            await self._changed.wait()

    async def messages(self) -> list[tuple[int, bytes]]:
        """All of its log."""
        found = await self.local.read(["#"], after_offset=0, until_offset=2**62, limit=1_000_000)
        return [(message.offset, message.payload) for message in found.messages]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers."""
    with KafkaCluster(3) as running:
        yield running


@pytest_asyncio.fixture
async def nodes(cluster: KafkaCluster, tmp_path: Path) -> AsyncIterator[list[Node]]:
    """Three nodes that started at once on empty directories."""
    settings = KafkaSettings(cluster.servers, servers.kafka_topic())
    numbers = itertools.count(1)
    started = [Node(settings, name, tmp_path / name, numbers) for name in ("a", "b", "c")]
    await asyncio.gather(*(node.start() for node in started))
    yield started
    for node in started:
        await node.end()


async def settled(nodes: list[Node]) -> list[str]:
    """Their digests, once all have read all."""
    log = await nodes[0]._open_log()
    bounds = await log.bounds()
    await log.close()
    for node in nodes:
        await node.replica._until(lambda node=node: node.replica.view.position >= bounds.end)  # type: ignore[misc]
    return [await digest(node.local) for node in nodes]


async def test_nodes_stay_equal_through_deaths(cluster: KafkaCluster, nodes: list[Node]) -> None:
    a, b, c = nodes
    assert [member.name for member in a.replica.members.current()] == ["a", "b", "c"]
    await asyncio.gather(*(node.run(ROUND) for node in nodes))

    admin = AdminClient({"bootstrap.servers": cluster.servers})
    topic = a._settings.topic
    leader = admin.list_topics(timeout=HANG_S).topics[topic].partitions[0].leader
    victim = next(broker for broker in cluster.brokers if broker.node_id == leader)
    busy = [asyncio.ensure_future(node.run(ROUND)) for node in nodes]
    victim.kill()
    await asyncio.gather(*busy)

    # A process ends with records on their way; the next one ends what is left of it.
    b.submit()
    await b.end()
    await asyncio.gather(a.run(ROUND), c.run(ROUND), b.start())

    # A live node is expelled, reads so, and takes nothing more until it has joined again.
    member = a.replica.members.get("c")
    assert member is not None
    failed = asyncio.Event()
    c.replica.peers.on_failed = lambda _error: failed.set()
    a.replica.submit_acts(Expel("c", member.incarnation, ANYHOW))
    await failed.wait()
    assert c.replica.has_failed
    assert await c.replica.recover()
    await asyncio.gather(*(node.run(ROUND) for node in nodes))

    digests = await settled(nodes)
    assert digests[0] == digests[1] == digests[2]
    logs = [await node.messages() for node in nodes]
    assert logs[0] == logs[1] == logs[2]
    payloads = [payload for _, payload in logs[0]]
    assert len(set(payloads)) == len(payloads)
    for node in nodes:
        mine = [payload for payload in payloads if payload.startswith(node.name.encode())]
        assert set(mine) >= set(node.acknowledged)
        assert mine == [payload for payload in node.sent if payload in set(mine)]
        assert len(node.acknowledged) >= 3 * 3 * ROUND
    # What is stored is what it was: the next process of a node goes on from there.
    await c.end()
    await c.start()
    assert (await settled(nodes))[0] == (await settled(nodes))[2]
