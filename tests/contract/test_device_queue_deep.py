"""Long random histories of deep queues: past the packed list, through the wrap, out of turn."""

from __future__ import annotations

import os
import random

import pytest

from perdure.storage.device_queue import DeviceQueue, EntryState, NewEntry, QueuedEntry
from perdure.storage.memory import MemoryDeviceQueue
from tests.contract.queues import NOW_US, SECOND_US, entry, read_all

STEPS = int(os.environ.get("PERDURE_QUEUE_STEPS", "40"))
SEEDS = [int(seed) for seed in (os.environ.get("PERDURE_SEED") or "1 2").split()]


class History:
    """The same calls to a backend and to the reference."""

    def __init__(self, real: DeviceQueue, seed: int) -> None:
        self.real = real
        self.model = MemoryDeviceQueue()
        self.random = random.Random(seed)
        self.now_us = NOW_US
        self.sent = 0

    async def both(self, call: str, *args: object, **options: object) -> None:
        expected = await getattr(self.model, call)(*args, **options)
        assert await getattr(self.real, call)(*args, **options) == expected

    async def entries(self, queue: DeviceQueue, **bounds: int) -> list[QueuedEntry]:
        return await read_all(queue, "c1", now_us=self.now_us, **bounds)

    def new(self, packet_id: int) -> NewEntry:
        self.sent += 1
        choose = self.random
        return entry(
            payload=b"%d" % self.sent * choose.choice([1, 1, 1, 300, 1500]),
            qos=choose.choice([1, 2]),
            packet_id=packet_id,
            state=EntryState(choose.random() < 0.05),
            forget_at_us=choose.choice(
                [0, 0, 0, self.now_us + choose.randrange(1, 90) * SECOND_US]
            ),
        )

    async def append(self) -> None:
        choose = self.random
        count = choose.choice([1, 1, 5, 40, 150])
        # In turn; now and then from elsewhere on; seldom one by one at random.
        ids = [0] * count
        manner = choose.random()
        if manner < 0.15:
            ids[0] = choose.randrange(1, 65_536)
        elif manner < 0.25:
            ids[0] = choose.choice([65_500, 65_535, 1, 2, 30])
        elif manner < 0.3:
            ids = [choose.randrange(1, 400) for _ in ids]
        batch = [self.new(packet_id) for packet_id in ids]
        limit = choose.choice([1000, 1000, 300, 120])
        await self.both("append", batch, now_us=self.now_us, limit=limit)

    async def settle(self) -> None:
        choose = self.random
        owed = [one.packet_id for one in await self.entries(self.model)]
        some = owed[: choose.choice([1, 30, 200])]
        if choose.random() < 0.3:
            some = choose.sample(owed, min(len(owed), choose.choice([1, 20, 100])))
        if choose.random() < 0.3:
            await self.both(
                "release",
                "c1",
                some[:20],
                epoch=1,
                forget_at_us=choose.choice([0, self.now_us + 30 * SECOND_US]),
            )
        else:
            await self.both("acknowledge", "c1", some, epoch=1)

    async def step(self) -> None:
        choice = self.random.random()
        if choice < 0.5:
            await self.append()
        elif choice < 0.85:
            await self.settle()
        elif choice < 0.9:
            self.now_us += self.random.randrange(60) * SECOND_US
            await self.both("sweep", now_us=self.now_us, limit=100_000)
        elif choice < 0.95:
            owed = await self.entries(self.model)
            if owed:
                serial = self.random.choice(owed).serial
                await self.both("trim_through", "c1", serial, epoch=1)
        await self.compare()

    async def compare(self) -> None:
        bounds = {
            "limit": self.random.choice([7, 100, 1000]),
            "bytes_max": self.random.choice([5_000, 1_000_000]),
            "after": self.random.choice([-1, -1, self.sent // 2]),
        }
        expected, got = [
            [
                (one.serial, one.packet_id, one.state, one.message.payload, one.forget_at_us)
                for one in await self.entries(queue, **bounds)
            ]
            for queue in (self.model, self.real)
        ]
        assert got == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_deep_queue_is_that_of_the_reference(queue: DeviceQueue, seed: int) -> None:
    history = History(queue, seed)
    await history.both("acknowledge", "c1", [], epoch=1)
    await history.model.take("c1", epoch=1)
    await queue.take("c1", epoch=1)
    for _ in range(STEPS):
        await history.step()
    stats, expected = await queue.stats("c1"), await history.model.stats("c1")
    assert stats is not None
    assert expected is not None
    assert (stats.publish_count, stats.pubrel_count) == (
        expected.publish_count,
        expected.pubrel_count,
    )
