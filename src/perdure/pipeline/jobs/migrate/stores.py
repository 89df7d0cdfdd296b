"""Opens the two sides of a migration; the only module that knows which class serves which URL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from perdure.errors import ConfigError
from perdure.pipeline.jobs.migrate.contract import Source, Target
from perdure.pipeline.jobs.migrate.endpoints import Endpoint

if TYPE_CHECKING:
    from perdure.storage.contract import Database
    from perdure.storage.device_queue import DeviceQueue
    from perdure.storage.remote.driver import Driver

DirectorySource: TypeAlias = Callable[[str], Source]
"""Opens a data directory for reading. What a session there is owed is for the broker to say, whose
room this one does not know: the command brings it."""
BROKER_PREFIX: Final = "perdure"
"""``storage.redis.prefix`` of a broker that says nothing else."""
_POOL_SIZE: Final = 4
"""Connections of one task; several tasks run at a time."""


async def open_source(endpoint: Endpoint, directory: DirectorySource | None = None) -> Source:
    """The source at an endpoint.

    Args:
        endpoint: where.
        directory: reads a data directory.

    Raises:
        ConfigError: its extra is not installed, or it is not what it should be.
    """
    if endpoint.is_database:
        if directory is None or endpoint.kind != "directory":
            raise ConfigError(f"{endpoint.shown} cannot be read here")
        return directory(endpoint.url)
    if endpoint.kind == "postgres":
        try:
            from perdure.pipeline.jobs.migrate.postgres import PostgresSource
        except ImportError as error:
            raise _missing("postgres") from error
        source = PostgresSource(endpoint.url)
        if not await source.is_ours():
            return source
        await source.close()
    if endpoint.kind == "redis" and endpoint.layout == "tbmq":
        try:
            from perdure.pipeline.jobs.migrate.redis import TbmqRedisSource
        except ImportError as error:
            raise _missing("redis") from error
        return TbmqRedisSource(endpoint.url, endpoint.prefix)
    from perdure.pipeline.jobs.migrate.queues import QueueSource

    return QueueSource(await _open_queue(endpoint))


async def open_target(endpoint: Endpoint, *, now_us: int) -> Target:
    """The target at an endpoint that many tasks can write.

    Raises:
        ConfigError: as of ``open_source``.
    """
    from perdure.pipeline.jobs.migrate.queues import QueueTarget

    if endpoint.is_database:
        raise ConfigError("the state of a broker has one writer, which is no task")
    return QueueTarget(await _open_queue(endpoint), now_us=now_us)


async def check_target(endpoint: Endpoint) -> None:
    """See that a server can be written, before all its clients are planned; warn if it does not
    keep what it acknowledges.

    Raises:
        ConfigError, StorageError: it cannot.
    """
    if not endpoint.is_database:
        queue = await _open_queue(endpoint, durable="warn")
        await queue.close()


def open_database(endpoint: Endpoint, *, now_us: int) -> Database:
    """The state of a broker that is written; made if it is not there.

    Raises:
        StorageLocked: a broker uses it.
        ConfigError: as of ``open_source``.
    """
    if endpoint.kind == "directory":
        from perdure.storage.rocksdb import RocksDatabase

        return RocksDatabase.open(endpoint.url)
    from perdure.storage.remote.store import RemoteDatabase

    return RemoteDatabase.open_blocking(partial(_driver, endpoint), now_us=now_us)


def _driver(endpoint: Endpoint) -> Driver:
    if endpoint.kind == "postgres":
        try:
            from perdure.storage.postgres.driver import PostgresDriver
        except ImportError as error:
            raise _missing("postgres") from error
        return PostgresDriver(endpoint.url)
    try:
        from perdure.storage.redis.driver import RedisDriver
    except ImportError as error:
        raise _missing("redis") from error
    return RedisDriver(endpoint.url, prefix=endpoint.prefix or BROKER_PREFIX)


async def _open_queue(
    endpoint: Endpoint, *, durable: Literal["warn", "ignore"] = "ignore"
) -> DeviceQueue:
    if endpoint.kind == "postgres":
        from perdure.storage.postgres import PostgresDeviceQueue

        return await PostgresDeviceQueue.open(endpoint.url, pool_size=_POOL_SIZE, durable=durable)
    try:
        from perdure.storage.redis.open import open_device_queue
    except ImportError as error:
        raise _missing("redis") from error
    layout: Literal["tbmq", "compact"] = "tbmq" if endpoint.layout == "tbmq" else "compact"
    return await open_device_queue(endpoint.url, layout=layout, prefix=endpoint.prefix or None)


def _missing(extra: str) -> ConfigError:
    return ConfigError(
        f"the client of {extra} is not installed", hint=f"pip install 'perdure[{extra}]'"
    )
