"""Redis is killed again and again while changes are routed: each is there once, in order."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from perdure.model import Message
from perdure.registry import Channel, DeviceTransport, Registry
from perdure.storage.redis import Command
from tests.support.database_servers import RedisServer
from tests.support.forwarder_bench import Bench

pytestmark = pytest.mark.redis
ROUNDS = 5
IN_A_ROUND = 300
TASKS = Channel("plant", "task")


async def test_a_redis_that_is_killed_loses_and_repeats_nothing() -> None:
    chance = random.Random(2)
    with RedisServer(appendfsync="always") as server:
        registry = await Registry.open(server.url)
        await registry.subscribe(DeviceTransport("phone", "ws"), TASKS)
        await registry.subscribe(DeviceTransport("door", "push"), TASKS, where='{"n":{"$gt":99}}')
        await registry.close()
        bench = Bench(
            {"type": "registry", "url": server.url, "batch_messages": 20, "retry_max_s": 1},
            filter=["app/#"],
        )
        await bench.run()
        sent = 0
        for _ in range(ROUNDS):
            reached = bench.forwarded() + chance.randrange(IN_A_ROUND)
            await bench.publish(
                *(
                    Message("app/plant/model/task/id/1", b'{"n":%d}' % n, 1, publisher="p")
                    for n in range(sent, sent + IN_A_ROUND)
                )
            )
            sent += IN_A_ROUND
            await bench.until(lambda: bench.forwarded() >= reached)  # noqa: B023 - awaited here
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await bench.until(lambda: bench.forwarders.rows()[0].offset >= bench.database.last_offset)
        registry = await Registry.open(server.url)
        found: dict[str, list[int]] = {}
        for transport in ("ws", "push"):
            key = f"nxx:transport:{transport}".encode()
            reply: Any = await registry.client.call(Command(("XRANGE", key, "-", "+"), key))
            found[transport] = [
                json.loads(pairs[pairs.index(b"payload") + 1])["n"] for _, pairs in reply
            ]
        assert found == {"ws": list(range(sent)), "push": list(range(100, sent))}
        assert (await registry.wanting(TASKS, {"n": 100})).devices  # what was acknowledged
        await registry.close()
        await bench.close()
