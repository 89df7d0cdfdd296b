"""The log on real Kafka brokers that die, stand still and come back: nothing lost, nothing twice.

A submitter keeps a window of records on their way, and two readers compare what they get with what
was submitted. A fault comes when so many records have come back, and the round ends when so many
more have: it is over when it is over, whatever the machine's speed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import final

import pytest
import pytest_asyncio
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from perdure.errors import ConfigError
from perdure.storage.kafka import KafkaLog, KafkaSettings
from perdure.storage.ordered.contract import LogRecord
from tests import servers
from tests.contract.logs import Collected
from tests.support.bounds import HANG_S
from tests.support.kafka import KafkaBroker, KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WINDOW = 64
ROUND = 2000
BEGINNINGS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers."""
    with KafkaCluster(3) as running:
        yield running


@final
class Load:
    """Submits, and keeps what comes back.

    Args:
        end: where.
    """

    def __init__(self, end: KafkaLog) -> None:
        self.end = end
        self.sent = 0
        self.collected = Collected()
        self.wanted = 0
        end.start(self, 0)

    def records(self, records: list[LogRecord]) -> None:
        self.collected.records(records)
        self._go_on()

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)

    def _go_on(self) -> None:
        while self.sent < self.wanted and self.sent - len(self.collected.got) < WINDOW:
            self.end.submit(b"%d" % self.sent)
            self.sent += 1

    async def run(self, count: int) -> None:
        """Until so many more have come back."""
        self.wanted += count
        self._go_on()
        await self.collected.wait(self.wanted)


@pytest_asyncio.fixture
async def settings(cluster: KafkaCluster) -> KafkaSettings:
    """A topic of its own."""
    return KafkaSettings(cluster.servers, servers.kafka_topic())


@pytest_asyncio.fixture
async def load(settings: KafkaSettings) -> AsyncIterator[Load]:
    """A submitter on it."""
    end = await KafkaLog.open(settings)
    yield Load(end)
    await end.close()


def leader(cluster: KafkaCluster, settings: KafkaSettings) -> KafkaBroker:
    """The broker that leads a topic."""
    admin = AdminClient({"bootstrap.servers": settings.servers})
    found = admin.list_topics(timeout=HANG_S).topics[settings.topic].partitions[0].leader
    return next(broker for broker in cluster.brokers if broker.node_id == found)


async def check(load: Load, settings: KafkaSettings) -> None:
    """All of it is there once and in order, for a reader that begins now too."""
    expected = [b"%d" % number for number in range(load.sent)]
    assert [record.value for record in load.collected.got] == expected
    times = [record.time_us for record in load.collected.got]
    assert min(times) > 0
    other = await KafkaLog.open(settings)
    reader = Collected()
    other.start(reader, 0)
    await reader.wait(load.sent)
    await other.close()
    assert reader.got == load.collected.got


async def test_the_topic_is_made_for_three(load: Load) -> None:
    assert (load.end.facts.replicas, load.end.facts.acks_min) == (3, 2)


async def test_who_begins_hears_at_once_who_leads(load: Load, settings: KafkaSettings) -> None:
    """After all nodes were killed each of them begins, and clients wait. librdkafka by itself looks
    once a second."""
    await load.run(1)
    took_s = 0.0
    for _ in range(BEGINNINGS):
        end, reader = await KafkaLog.open(settings), Collected()
        await end.bounds()
        begun_s = time.monotonic()
        end.start(reader, 0)
        await reader.wait(1)
        took_s += time.monotonic() - begun_s
        await end.close()
    assert took_s < BEGINNINGS / 4


async def test_a_leader_that_is_killed(
    cluster: KafkaCluster, settings: KafkaSettings, load: Load
) -> None:
    await load.run(ROUND)
    victim = leader(cluster, settings)
    load.wanted += WINDOW
    load._go_on()
    victim.kill()
    await load.run(ROUND)
    assert leader(cluster, settings) is not victim
    victim.begin()
    victim.wait()
    await load.run(ROUND)
    await check(load, settings)


async def test_a_leader_that_stands_still_and_wakes(
    cluster: KafkaCluster, settings: KafkaSettings, load: Load
) -> None:
    await load.run(ROUND)
    victim = leader(cluster, settings)
    load.wanted += WINDOW
    load._go_on()
    victim.pause()
    try:
        await load.run(ROUND)
    finally:
        victim.resume()
    await load.run(ROUND)
    await check(load, settings)


async def test_all_of_kafka_goes_and_comes_back(
    cluster: KafkaCluster, settings: KafkaSettings, load: Load
) -> None:
    await load.run(ROUND)
    load.wanted += WINDOW
    load._go_on()
    for broker in cluster.brokers:
        broker.kill()
    for broker in cluster.brokers:
        broker.begin()
    for broker in cluster.brokers:
        broker.wait()
    await load.run(ROUND)
    await check(load, settings)
    assert load.end.problem == ""


async def test_a_topic_of_another_shape_is_refused(settings: KafkaSettings) -> None:
    admin = AdminClient({"bootstrap.servers": settings.servers})
    topic = NewTopic(settings.topic, num_partitions=2, replication_factor=3)
    admin.create_topics([topic])[settings.topic].result(HANG_S)
    with pytest.raises(ConfigError, match="2 partitions"):
        await KafkaLog.open(settings)
