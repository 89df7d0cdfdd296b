"""TBMQ 2.x's keys, written as TBMQ writes them, on a real server and a real cluster."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

pytest.importorskip("hiredis")
from perdure.clock import SystemClock
from perdure.errors import StorageUnavailable
from perdure.pipeline.jobs.migrate import redis
from perdure.pipeline.jobs.migrate.contract import Range
from perdure.pipeline.jobs.migrate.redis import TbmqRedisSource
from perdure.pipeline.tbmq.pending import PendingPage
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command
from perdure.storage.redis.url import parse_url
from tests.support.database_servers import RedisServer
from tests.support.redis_cluster import RedisCluster
from tests.unit.pipeline.jobs.migrate.samples import SETTINGS, numbers

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
]
WEEK_S = 604_800


@pytest.fixture(scope="module")
def single() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as running:
        yield running


@pytest.fixture(params=["single", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param).url
    return found


def stored(packet_id: int, payload: bytes, **fields: Any) -> bytes:
    """The JSON of a message."""
    value = {
        "qos": 1,
        "topicName": "t/a",
        "packetId": packet_id,
        "time": SystemClock().now_us() // 1000,
        "payload": base64.b64encode(payload).decode(),
        "packetType": "PUBLISH",
        "retained": False,
    }
    return json.dumps(value | fields).encode()


class Tbmq:
    """Writes keys as TBMQ does."""

    def __init__(self, client: RedisClient, prefix: str) -> None:
        self.client = client
        self.prefix = prefix

    async def run(self, *args: str | bytes | int) -> None:
        key = args[1]
        assert isinstance(key, str)
        await self.client.call(Command(args, key.encode()))

    async def add(
        self, client_id: str, score: int, packet_id: int, *, ttl_s: int = WEEK_S, **fields: Any
    ) -> None:
        queue = f"{self.prefix}{{{client_id}}}_messages"
        member = f"{queue}_{packet_id}"
        await self.run("ZADD", queue, score, member)
        value = stored(packet_id, b"%d" % score, **fields)
        await self.run("SET", member, value, *(("EX", ttl_s) if ttl_s else ()))

    async def last(self, client_id: str, value: str) -> None:
        await self.run("SET", f"{self.prefix}{{{client_id}}}_last_packet_id", value)

    async def lose(self, client_id: str, packet_id: int) -> None:
        await self.run("DEL", f"{self.prefix}{{{client_id}}}_messages_{packet_id}")


async def write(url: str, prefix: str) -> Tbmq:
    return Tbmq(await RedisClient.connect(parse_url(url)), prefix)


async def read(url: str, prefix: str, entries_max: int = 10_000) -> dict[str, list[PendingPage]]:
    found: dict[str, list[PendingPage]] = {}
    source = TbmqRedisSource(url, prefix)
    now = msgspec.structs.replace(SETTINGS, now_us=SystemClock().now_us())
    try:
        async for part in source.plan(entries_max):
            async for page in source.read(part, now):
                assert page.client_id not in found or not page.is_first
                found.setdefault(page.client_id, []).append(page)
    finally:
        await source.close()
    return found


async def _connect_to_an_old_one(source: Any) -> RedisClient:
    if source._client is None:
        source._client = await RedisClient.connect(source._address)
    found: RedisClient = source._client
    return found


async def test_oddities(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tbmq = await write(url, "p[1]*")
    now_ms = SystemClock().now_us() // 1000
    for score, packet_id in ((65_534, 65_534), (65_535, 65_535), (65_536, 1), (65_537, 2)):
        await tbmq.add("wraps", score, packet_id)
    await tbmq.last("wraps", "2")
    await tbmq.add("dangling", 1, 1)
    await tbmq.add("dangling", 2, 2)
    await tbmq.lose("dangling", 1)
    await tbmq.add("late", 1, 1, msgExpiryInterval=5, time=now_ms - 6_000)
    await tbmq.add("late", 2, 2, msgExpiryInterval=5, time=now_ms - 6_000, packetType="PUBREL")
    await tbmq.add("late", 3, 3, ttl_s=0, msgExpiryInterval=9_000, topic="old", topicName=None)
    await tbmq.last("only a number", "77")
    await tbmq.last("zero", "0")
    await tbmq.add("bad", 1, 1, qos="?")
    odd = ["{braces}", "a b/c", "x_messages", "}{", "ss_group_a/+", "ü", "y}_messages"]
    for client_id in odd:
        await tbmq.add(client_id, 4, 4)
        await tbmq.last(client_id, "9")
    other = await write(url, "other")
    await other.add("stranger", 1, 1)
    await tbmq.client.call(Command(("SET", "p[1]*{c}_messages_not", "x"), b"p[1]*{c}_messages_not"))
    found = await read(url, "p[1]*")
    assert numbers(found["wraps"]) == [
        (b"65534", 65_534),
        (b"65535", 65_535),
        (b"65536", 1),
        (b"65537", 2),
    ]
    assert numbers(found["dangling"]) == [(b"2", 2)]
    assert found["dangling"][0].losses.dangling == 1
    assert found["dangling"][0].last_packet_id == 2
    assert numbers(found["late"]) == [(b"2", 2), (b"3", 3)]
    assert found["late"][0].losses.expired == 1
    pubrel, old = found["late"][0].entries
    assert (pubrel.released, old.topic, old.forget_at_us) == (True, "old", 0)
    assert (found["only a number"][0].entries, found["only a number"][0].last_packet_id) == ([], 77)
    assert found["zero"][0].last_packet_id == 0
    assert "_messages_1" in found["bad"][0].losses.damaged[0]
    for client_id in odd:
        assert numbers(found[client_id]) == [(b"4", 4)]
        assert found[client_id][0].last_packet_id == 9
    assert "stranger" not in found
    # A Redis before 7 does not tell the time, only how long.
    monkeypatch.setattr(TbmqRedisSource, "_connect", _connect_to_an_old_one)
    again = await read(url, "p[1]*")
    for before, after in zip(found["wraps"][0].entries, again["wraps"][0].entries, strict=True):
        assert abs(before.forget_at_us - after.forget_at_us) < 1_000_000
    left_us = found["wraps"][0].entries[0].forget_at_us - SystemClock().now_us()
    assert (WEEK_S - 60) * 1_000_000 < left_us <= WEEK_S * 1_000_000
    await tbmq.client.close()
    await other.client.close()


async def test_long_queues_in_small_windows(
    single: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "PAGE_ENTRIES", 4)
    monkeypatch.setattr(redis, "PAGE_BYTES", 6)
    monkeypatch.setattr(redis, "_CLIENTS", 3)
    tbmq = await write(single.url, "long:")
    sizes = {f"c{number}": number for number in range(1, 12)}
    for client_id, size in sizes.items():
        for score in range(1, size + 1):
            await tbmq.add(client_id, score, score)
    found = await read(single.url, "long:", entries_max=15)
    for client_id, size in sizes.items():
        queue = found[client_id]
        assert [entry.place for page in queue for entry in page.entries] == list(range(1, size + 1))
        assert [page.is_first for page in queue] == [True] + [False] * (len(queue) - 1)
        assert [page.is_last for page in queue] == [False] * (len(queue) - 1) + [True]
        assert all(len(page.entries) <= 4 for page in queue)
    source = TbmqRedisSource(single.url, "long:")
    ranges = [part async for part in source.plan(15)]
    assert sorted(name for part in ranges for name in part.clients) == sorted(sizes)
    assert all(part.entries <= 15 for part in ranges)
    capped = msgspec.structs.replace(SETTINGS, limit=4)
    pages = [page async for page in source.read(Range(0, 1, clients=("c11",)), capped)]
    assert [entry.place for page in pages for entry in page.entries] == [8, 9, 10, 11]
    assert pages[0].losses.over_limit == 7
    await source.close()
    await tbmq.client.close()


async def test_nobody_is_there() -> None:
    source = TbmqRedisSource("redis://127.0.0.1:1", "")
    with pytest.raises(StorageUnavailable):
        _ = [part async for part in source.plan(1)]
    await source.close()
