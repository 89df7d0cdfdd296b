"""A server that may lose what it has acknowledged is noticed."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.durability import advice, check, gaps
from perdure.storage.redis.url import RedisAddress, parse_url
from tests.support.database_servers import RedisServer
from tests.unit.storage.redis.fake import array, bulk, fake_redis

SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
    "save": "",
    "no-appendfsync-on-rewrite": "no",
    "hash-max-listpack-value": "2048",
}


def test_nothing_is_lost_with_a_log_that_is_always_synced() -> None:
    assert gaps(SAFE) == []
    assert advice(SAFE) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"appendonly": "no"}, "since its start are lost"),
        ({"appendonly": "no", "save": "3600 1"}, "since the last snapshot are lost"),
        ({"appendfsync": "everysec"}, "loses the last second"),
        ({"appendfsync": "no"}, "what the kernel has not written"),
        ({"no-appendfsync-on-rewrite": "yes"}, "during a rewrite"),
        ({"maxmemory": "1000", "maxmemory-policy": "allkeys-lru"}, "queues vanish"),
    ],
)
def test_each_way_to_lose_messages_is_named(changes: dict[str, str], words: str) -> None:
    (reason,) = gaps({**SAFE, **changes})
    assert words in reason


def test_a_policy_without_a_limit_evicts_nothing() -> None:
    assert gaps({**SAFE, "maxmemory-policy": "allkeys-lru"}) == []


def test_the_default_of_redis_is_called_wasteful() -> None:
    (reason,) = advice({**SAFE, "hash-max-listpack-value": "64"})
    assert reason.startswith("hash-max-listpack-value is 64")
    assert advice({}) == []


@pytest.mark.redis
@pytest.mark.slow
async def test_the_policy_decides(server: RedisServer) -> None:
    # The server of these tests syncs each second.
    client = await RedisClient.connect(parse_url(server.url))
    assert await check(client, "ignore") == []
    assert [reason.split()[0] for reason in await check(client, "warn")] == ["appendfsync"]
    with pytest.raises(ConfigError, match="appendfsync is everysec"):
        await check(client, "refuse")
    server.command("CONFIG", "SET", "appendfsync", "always", "hash-max-listpack-value", "64")
    assert [reason.split()[0] for reason in await check(client, "refuse")] == [
        "hash-max-listpack-value"
    ]
    assert await check(client, "refuse", compact=False) == []
    server.command("CONFIG", "SET", "appendfsync", "everysec", "hash-max-listpack-value", "2048")
    await client.close()


async def test_settings_that_cannot_be_read_are_no_promise() -> None:
    def handler(command: list[bytes]) -> bytes:
        return b"-NOPERM this user has no permissions\r\n" if command[0] == b"CONFIG" else array()

    async with fake_redis(handler) as server:
        client = await RedisClient.connect(RedisAddress((("127.0.0.1", server.port),)))
        with pytest.raises(ConfigError, match="cannot be read"):
            await check(client, "refuse")
        assert len(await check(client, "warn")) == 1
        server.handler = lambda _: array(
            *(bulk(part.encode()) for pair in SAFE.items() for part in pair)
        )
        assert await check(client, "refuse") == []
        await client.close()
