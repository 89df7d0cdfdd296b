"""The device queues under the contract: a later one joins with one more entry in ``QUEUES``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import pytest

from perdure.model import Message
from perdure.mqtt.packets import PUBLISH, Properties
from perdure.mqtt.properties import write_properties
from perdure.storage.device_queue import DeviceQueue, NewEntry, QueuedEntry
from perdure.storage.memory import MemoryDeviceQueue
from perdure.storage.postgres import Pool, PostgresDeviceQueue, Statement
from perdure.storage.postgres.schema import migrate
from perdure.storage.redis import open_device_queue
from perdure.storage.redis.node import ClientSettings
from tests.support.bounds import HANG_S
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.redis_cluster import RedisCluster

# Ahead of every clock: what a server forgets by its own clock stays until the test says so.
NOW_US = 4_000_000_000_000_000
SECOND_US = 1_000_000

PATIENT = ClientSettings(connect_timeout_s=HANG_S, timeout_s=HANG_S, wait_s=HANG_S)
"""Of a client that waits for a server which the machine lets wait."""

QueueFactory = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[DeviceQueue]]
"""Makes an empty store of queues; a server that it needs comes from a fixture."""


@asynccontextmanager
async def _memory(_request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    yield MemoryDeviceQueue()


@asynccontextmanager
async def _compact(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    server: RedisServer = request.getfixturevalue("redis_server")
    async with _on_redis([server], server.url) as queue:
        yield queue


@asynccontextmanager
async def _compact_cluster(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    cluster: RedisCluster = request.getfixturevalue("redis_cluster")
    async with _on_redis(cluster.nodes, cluster.url) as queue:
        yield queue


@asynccontextmanager
async def _tbmq(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    server: RedisServer = request.getfixturevalue("redis_server")
    async with _on_redis([server], server.url, "tbmq") as queue:
        yield queue


@asynccontextmanager
async def _tbmq_cluster(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    cluster: RedisCluster = request.getfixturevalue("redis_cluster")
    async with _on_redis(cluster.nodes, cluster.url, "tbmq") as queue:
        yield queue


@asynccontextmanager
async def _on_redis(
    nodes: list[RedisServer], url: str, layout: Literal["compact", "tbmq"] = "compact"
) -> AsyncIterator[DeviceQueue]:
    for node in nodes:
        node.command("FLUSHALL")
    queue = await open_device_queue(url, layout=layout, settings=PATIENT)
    try:
        yield queue
    finally:
        await queue.close()


@asynccontextmanager
async def _postgres(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    async with _on_postgres(request, batched=True) as queue:
        yield queue


@asynccontextmanager
async def _postgres_unbatched(request: pytest.FixtureRequest) -> AsyncIterator[DeviceQueue]:
    async with _on_postgres(request, batched=False) as queue:
        yield queue


@asynccontextmanager
async def _on_postgres(
    request: pytest.FixtureRequest, *, batched: bool
) -> AsyncIterator[DeviceQueue]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    pool = Pool(server.url, size=2, connect_timeout_s=HANG_S, command_timeout_s=HANG_S)
    await migrate(pool)
    tables = "device_session_ctx, device_publish_msg, perdure_queue, perdure_queue_entry"
    await pool.run(Statement(f"TRUNCATE {tables}"))
    queue = PostgresDeviceQueue(pool, batched=batched)
    yield queue
    await queue.close()


_POSTGRES = [pytest.mark.postgres]
_REDIS = [pytest.mark.redis]

QUEUES: dict[str, QueueFactory] = {
    "memory": _memory,
    "postgres": _postgres,
    "postgres-unbatched": _postgres_unbatched,
    "redis-compact": _compact,
    "redis-compact-cluster": _compact_cluster,
    "redis-tbmq": _tbmq,
    "redis-tbmq-cluster": _tbmq_cluster,
}
MARKS: dict[str, list[pytest.MarkDecorator]] = {
    name: _REDIS if name.startswith("redis") else _POSTGRES for name in QUEUES if name != "memory"
}
"""Marks of a backend's tests: that it needs a server, and when to skip it."""


def parameters(*, without: tuple[str, ...] = ()) -> list[object]:
    """All backends but some, as parameters of a fixture."""
    names = [name for name in QUEUES if name not in without]
    return [pytest.param(name, marks=MARKS.get(name, [])) for name in names]


PROPERTIES = write_properties(
    Properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="answers/ä",
        correlation_data=b"\x00\xff",
        user_properties=(("unit", "K"), ("unit", "°C"), ("", "")),
    ),
    PUBLISH,
)


def message(payload: bytes = b"x", topic: str = "a/b", **fields: object) -> Message:
    """A message as the broker gives it to a queue."""
    values: dict[str, object] = {"qos": 1, "published_at_us": NOW_US}
    values.update(fields)
    return Message(topic, payload, **values)  # type: ignore[arg-type]


def entry(client_id: str = "c1", payload: bytes = b"x", **fields: object) -> NewEntry:
    """An entry to append; fields of the message are ``topic``, ``expires_at_us``, ``properties``
    and ``published_at_us``."""
    names = ("topic", "expires_at_us", "properties", "published_at_us")
    inner = {name: fields.pop(name) for name in names if name in fields}
    qos = fields.pop("qos", 1)
    return NewEntry(
        client_id,
        message(payload, **inner),  # type: ignore[arg-type]
        qos,  # type: ignore[arg-type]
        **fields,  # type: ignore[arg-type]
    )


async def append(
    queue: DeviceQueue, *entries: NewEntry, limit: int = 1000, now_us: int = NOW_US
) -> list[int]:
    """Append and return the packet identifiers."""
    results = await queue.append(entries, now_us=now_us, limit=limit)
    return [result.packet_id for result in results]


async def read_all(
    queue: DeviceQueue,
    client_id: str = "c1",
    *,
    after: int = -1,
    limit: int = 100,
    bytes_max: int = 1_000_000,
    now_us: int = NOW_US,
) -> list[QueuedEntry]:
    """Every page, one after the other, each held to its bounds."""
    entries: list[QueuedEntry] = []
    next_after: int | None = after
    while next_after is not None:
        page = await queue.read(
            client_id, after_serial=next_after, limit=limit, bytes_max=bytes_max, now_us=now_us
        )
        assert len(page.entries) <= limit
        size = sum(len(entry.message.payload) for entry in page.entries)
        assert size <= bytes_max or len(page.entries) == 1
        assert page.next_after is None or page.next_after > next_after
        next_after = page.next_after
        entries += page.entries
    serials = [entry.serial for entry in entries]
    assert serials == sorted(set(serials))
    return entries


async def payloads(queue: DeviceQueue, client_id: str = "c1", **bounds: int) -> list[bytes]:
    """The payloads of all that is owed, in order."""
    return [entry.message.payload for entry in await read_all(queue, client_id, **bounds)]
