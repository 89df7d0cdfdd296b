"""Servers that tests share: one of each kind for a whole run, and a fresh place in it for each.

``PERDURE_TEST_BACKEND=redis``, ``redis-cluster`` or ``postgres`` runs the wire cases on that
profile. A server is started when it is first asked for and ended with the run.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os

import asyncpg

from perdure.bench.servers.postgres import PostgresServer, find_postgres
from perdure.bench.servers.redis import RedisServer, find_redis
from perdure.bench.servers.redis_cluster import RedisCluster

BACKEND = os.environ.get("PERDURE_TEST_BACKEND", "rocksdb")

_numbers = itertools.count(1)
_started: dict[str, PostgresServer | RedisServer | RedisCluster] = {}


def has_postgres() -> bool:
    """Whether PostgreSQL is installed here."""
    return find_postgres() is not None


def has_redis() -> bool:
    """Whether Redis is installed here."""
    return find_redis() is not None


def postgres() -> PostgresServer:
    """The PostgreSQL of this run; a crash of the machine is nobody's subject here."""
    server = _started.get("postgres")
    if server is None:
        server = PostgresServer(durable=False)
        _keep("postgres", server)
    assert isinstance(server, PostgresServer)
    return server


def redis() -> RedisServer:
    """The Redis of this run."""
    server = _started.get("redis")
    if server is None:
        server = RedisServer()
        _keep("redis", server)
    assert isinstance(server, RedisServer)
    return server


def redis_cluster() -> RedisCluster:
    """The Redis Cluster of this run."""
    cluster = _started.get("redis-cluster")
    if cluster is None:
        cluster = RedisCluster()
        _keep("redis-cluster", cluster)
    assert isinstance(cluster, RedisCluster)
    return cluster


def _keep(name: str, server: PostgresServer | RedisServer | RedisCluster) -> None:
    server.start()
    _started[name] = server
    atexit.register(server.close)


def postgres_place() -> str:
    """The URL of an empty schema."""
    server = postgres()
    name = f"place_{os.getpid()}_{next(_numbers)}"

    async def make() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute(f"CREATE SCHEMA {name}")
        await connection.close()

    asyncio.run(make())
    return f"{server.url}?search_path={name}"


def redis_prefix() -> str:
    """A prefix that nobody else uses."""
    return f"place-{os.getpid()}-{next(_numbers)}"


def settings() -> dict[str, str]:
    """Settings of a broker of the backend that the run is for, with nothing stored yet."""
    if BACKEND == "postgres":
        return {"storage.backend": "postgres", "storage.postgres.url": postgres_place()}
    if BACKEND in {"redis", "redis-cluster"}:
        return {
            "storage.backend": "redis",
            "storage.redis.url": (redis() if BACKEND == "redis" else redis_cluster()).url,
            "storage.redis.prefix": redis_prefix(),
        }
    return {}
