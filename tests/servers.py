"""Servers that tests share: one of each kind for a whole run, and a fresh place in it for each.

``PERDURE_TEST_BACKEND=redis``, ``redis-cluster`` or ``postgres`` runs the wire cases on that
profile, ``cluster`` on three nodes with Kafka between which the connections are spread.
A server is started when it is first asked for and ended with the run: at the end of the tests
(``tests/conftest.py``), since a worker that takes long to leave is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
from collections.abc import Callable
from typing import TypeVar

import asyncpg

from perdure.storebench.servers.server import Managed
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.kafka import KafkaCluster
from tests.support.redis_cluster import RedisCluster

S = TypeVar("S", bound=Managed)

BACKEND = os.environ.get("PERDURE_TEST_BACKEND", "rocksdb")

_numbers = itertools.count(1)
_started: dict[type[Managed], Managed] = {}


def postgres() -> PostgresServer:
    """The PostgreSQL of this run; a crash of the machine is nobody's subject here."""
    return _running(PostgresServer, lambda: PostgresServer(durable=False))


def redis() -> RedisServer:
    """The Redis of this run."""
    return _running(RedisServer, RedisServer)


def redis_cluster() -> RedisCluster:
    """The Redis Cluster of this run."""
    return _running(RedisCluster, RedisCluster)


def kafka() -> KafkaCluster:
    """The Kafka of this run, one broker."""
    return _running(KafkaCluster, KafkaCluster)


def kafka_topic() -> str:
    """The name of a topic that nobody else uses."""
    return f"place-{os.getpid()}-{next(_numbers)}"


def _running(kind: type[S], make: Callable[[], S]) -> S:
    server = _started.get(kind)
    if server is None:
        server = make()
        server.start()
        _started[kind] = server
    assert isinstance(server, kind)
    return server


@atexit.register
def close() -> None:
    """End what was started."""
    while _started:
        _started.popitem()[1].close()


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
