"""kill -9 of PostgreSQL at random instants: what an append has acknowledged is there, once."""

from __future__ import annotations

import asyncio
import random
from typing import final

import pytest

from perdure.errors import StorageError
from perdure.model import Message
from perdure.storage.device_queue import DeviceQueue, NewEntry, QueuedEntry
from perdure.storage.postgres import PostgresDeviceQueue
from tests.support.database_servers import PostgresServer

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.slow,
]

NOW_US = 1_700_000_000_000_000
CLIENTS = 24
ROUNDS = 3


@final
class Traffic:
    """Writers who repeat what was not acknowledged, and owners who do so too.

    The payload of a client's n-th message is n, and so is its packet identifier: a message that
    was taken twice or lost would shift all that follow.
    """

    def __init__(self, queue: DeviceQueue, chance: random.Random, messages: int) -> None:
        self.queue = queue
        self.messages = messages
        self.chance = chance
        self.failures = 0
        self.appended = dict.fromkeys(range(CLIENTS), 0)
        self.settled = dict.fromkeys(range(CLIENTS), 0)

    @property
    def progress(self) -> float:
        """The share that is done."""
        return sum(self.settled.values()) / (self.messages * CLIENTS)

    async def write(self, client: int) -> None:
        """Append all messages, some at a time, each until it is acknowledged."""
        while self.appended[client] < self.messages:
            first = self.appended[client] + 1
            last = min(self.messages, first + self.chance.randrange(8))
            entries = [entry(client, number) for number in range(first, last + 1)]
            try:
                results = await self.queue.append(entries, now_us=NOW_US, limit=65_535)
            except StorageError as error:
                await self._failed(error)
                continue
            for number, result in enumerate(results, first):
                # A repeat was taken by a call whose answer was lost.
                assert result.repeated or result.packet_id == number
                assert result.trimmed == ()
            self.appended[client] = last

    async def own(self, client: int) -> None:
        """Read and settle all messages in order; QoS 2 in two steps."""
        name = f"client-{client}"
        while self.settled[client] < self.messages:
            acknowledged = self.appended[client]
            try:
                page = await self.queue.read(
                    name, after_serial=-1, limit=20, bytes_max=1 << 20, now_us=NOW_US
                )
                self._check(client, page.entries, acknowledged)
                numbers = [found.packet_id for found in page.entries]
                if numbers and numbers[0] % 3 == 0:
                    assert await self.queue.release(name, numbers, epoch=1) == len(numbers)
                await self.queue.acknowledge(name, numbers, epoch=1)
            except StorageError as error:
                await self._failed(error)
                continue
            if numbers:
                self.settled[client] = numbers[-1]
            else:
                await asyncio.sleep(0.002)

    def _check(self, client: int, entries: list[QueuedEntry], acknowledged: int) -> None:
        settled = self.settled[client]
        numbers = [found.packet_id for found in entries]
        for found in entries:
            assert found.message.payload in (b"%d" % found.packet_id, b"")
        if numbers:
            # No gap, no repeat; some may have been settled by a call whose answer was lost.
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert settled < numbers[0] <= settled + 21
        else:
            assert acknowledged <= settled + 20

    async def _failed(self, error: StorageError) -> None:
        assert error.retriable, error
        self.failures += 1
        await asyncio.sleep(0.01)


def entry(client: int, number: int) -> NewEntry:
    message = Message("t", b"%d" % number, 2, published_at_us=NOW_US)
    return NewEntry(f"client-{client}", message, 1 + number % 2, position=number)


@pytest.mark.trap(21)
@pytest.mark.trap(35)
@pytest.mark.parametrize(("batched", "messages"), [(True, 300), (False, 80)])
async def test_nothing_that_was_acknowledged_is_lost_or_doubled(
    batched: bool, messages: int
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with PostgresServer() as server:
        queue = await PostgresDeviceQueue.open(server.url, durable="refuse", batched=batched)
        for client in range(CLIENTS):
            await queue.take(f"client-{client}", epoch=1)
        traffic = Traffic(queue, chance, messages)
        async with asyncio.TaskGroup() as tasks:
            for client in range(CLIENTS):
                tasks.create_task(traffic.write(client))
                tasks.create_task(traffic.own(client))
            for round_ in range(1, ROUNDS + 1):
                until = (round_ - chance.random()) / (ROUNDS + 1)
                while traffic.progress < until:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
        assert traffic.failures > 0
        for client in range(CLIENTS):
            stats = await queue.stats(f"client-{client}")
            assert stats is not None
            assert (stats.publish_count, stats.pubrel_count) == (0, 0)
            assert (stats.last_packet_id, stats.last_position) == (messages, messages)
        await queue.close()
