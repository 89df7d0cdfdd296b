"""Who takes part, and how each is started on servers that are ours or the user's."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

import msgspec

from perdure.bench.errors import BenchError
from perdure.storebench.servers.postgres import PostgresServer
from perdure.storebench.servers.redis import RedisServer
from perdure.storebench.workload import Store

Durability: TypeAlias = Literal["durable", "relaxed"]

MEANING: Final[dict[Durability, dict[str, str]]] = {
    "durable": {
        "postgres": "synchronous_commit=on",
        "redis": "appendfsync always",
        "embedded": "written and synced",
    },
    "relaxed": {
        "postgres": "synchronous_commit=off",
        "redis": "appendfsync everysec",
        "embedded": "written, not synced",
    },
}


class Contestant(msgspec.Struct, frozen=True):
    """One row of the comparison.

    Attributes:
        name: of it.
        server: what it runs on.
        shapes: in which shapes it takes part.
        means: in words.
    """

    name: str
    server: Literal["postgres", "redis", "embedded"]
    shapes: tuple[str, ...]
    means: str


CONTESTANTS: Final = (
    Contestant("postgres-unbatched", "postgres", ("single",), "every request a transaction"),
    Contestant("postgres-batched", "postgres", ("single", "batched"), "requests gathered into one"),
    Contestant("redis-sync", "redis", ("single", "batched"), "tbmq layout, redis-py, waiting"),
    Contestant("redis-async", "redis", ("single", "batched"), "tbmq layout, Perdure's client"),
    Contestant("compact", "redis", ("single", "batched"), "compact layout, Perdure's client"),
    Contestant("embedded", "embedded", ("single", "batched"), "the log in the process"),
)
BY_NAME: Final = {contestant.name: contestant for contestant in CONTESTANTS}


class Servers(msgspec.Struct, frozen=True):
    """Servers that run already; empty = start one.

    Attributes:
        redis, postgres: URLs of a Redis, and of an empty database.
    """

    redis: str = ""
    postgres: str = ""


@final
class Stage:
    """The servers of one durability, started when they are first needed; a context manager.

    Args:
        durability: how they are set.
        servers: those that run already.
    """

    _no_pids: tuple[int, ...] = ()

    def __init__(self, durability: Durability, servers: Servers) -> None:
        self.durability = durability
        self._given = servers
        self._stack = ExitStack()
        self._redis: RedisServer | None = None
        self._postgres: PostgresServer | None = None

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def open(self, contestant: Contestant, *, clients: int) -> Any:
        """A contestant, connected and with its clients known to it."""
        openers: dict[str, Callable[[Contestant], Awaitable[Any]]] = {
            "postgres": self._open_postgres,
            "redis": self._open_redis,
            "embedded": self._open_embedded,
        }
        store = await openers[contestant.server](contestant)
        try:
            await store.prepare(clients)
        except BaseException:
            await store.close()
            raise
        return store

    async def _open_postgres(self, contestant: Contestant) -> Store:
        from perdure.storage.postgres import PostgresDeviceQueue
        from perdure.storebench.stores import QueueStore

        url, pids = self._given.postgres, self._no_pids
        if not url:
            if self._postgres is None:
                settings = {"shared_buffers": "256MB", "max_connections": "60"}
                if self.durability == "relaxed":
                    settings["synchronous_commit"] = "off"
                self._postgres = self._stack.enter_context(PostgresServer(settings=settings))
            url, pids = self._postgres.url, (self._postgres.pid,)
        batched = contestant.name == "postgres-batched"
        queue = await PostgresDeviceQueue.open(
            url, pool_size=4 if batched else 16, batched=batched, durable="ignore"
        )
        return QueueStore(queue, pids, lambda: _postgres_bytes(url))

    async def _open_redis(self, contestant: Contestant) -> Store:
        from perdure.storage.redis.client import RedisClient
        from perdure.storage.redis.compact import CompactLayout
        from perdure.storage.redis.tbmq import TbmqLayout
        from perdure.storage.redis.url import parse_url
        from perdure.storebench.stores import PREFIX, AsyncRedisStore, SyncRedisStore

        url, pids = self._given.redis, self._no_pids
        if not url:
            if self._redis is None:
                policy = "always" if self.durability == "durable" else "everysec"
                self._redis = self._stack.enter_context(RedisServer(appendfsync=policy))
            url, pids = self._redis.url, (self._redis.pid,)

        def size() -> int:
            return _redis_bytes(url)

        if contestant.name == "redis-sync":
            return SyncRedisStore(url, TbmqLayout(PREFIX), pids, size)
        layout = CompactLayout(PREFIX) if contestant.name == "compact" else TbmqLayout(PREFIX)
        client = await RedisClient.connect(parse_url(url), code=layout.code)
        return AsyncRedisStore(client, layout, pids, size)

    async def _open_embedded(self, contestant: Contestant) -> Store:
        from perdure.storage.rocksdb import RocksDatabase
        from perdure.storebench.stores import EmbeddedStore

        directory = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        database = RocksDatabase.open(directory)
        return EmbeddedStore(database, directory, durable=self.durability == "durable")


def choose(names: Sequence[str]) -> list[Contestant]:
    """Contestants by name; all without any.

    Raises:
        BenchError: there is none of that name.
    """
    for name in names:
        if name not in BY_NAME:
            raise BenchError(f"no contestant {name!r}", hint=", ".join(BY_NAME))
    return [one for one in CONTESTANTS if not names or one.name in names]


def _redis_bytes(url: str) -> int:
    """Memory that a Redis uses for its data."""
    from perdure.storage.redis.client import RedisClient
    from perdure.storage.redis.commands import Command
    from perdure.storage.redis.replies import info_of
    from perdure.storage.redis.url import parse_url

    async def ask() -> int:
        client = await RedisClient.connect(parse_url(url))
        try:
            reply = await client.call(Command(("INFO", "memory")))
        finally:
            await client.close()
        return int(info_of(reply)["used_memory"])

    return asyncio.run(ask())


def _postgres_bytes(url: str) -> int:
    """What the tables of the queues take on disk, indexes included."""
    from perdure.storage.postgres import Pool, Statement

    async def ask() -> int:
        pool = Pool(url, size=1)
        try:
            rows = await pool.run(
                Statement(
                    "SELECT sum(pg_total_relation_size(oid))::bigint AS size FROM pg_class "
                    "WHERE relname = ANY ($1::varchar[]) AND relkind = 'r'",
                    (["device_publish_msg", "perdure_queue_entry", "perdure_queue"],),
                )
            )
        finally:
            await pool.close()
        return int(rows[0]["size"] or 0)

    return asyncio.run(ask())
