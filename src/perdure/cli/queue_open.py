"""Opens the store of queues that a URL or a directory names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, final

from perdure.cli.data import each, open_database
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.queue_sources import (
    BrokerSource,
    DeviceQueueSource,
    PostgresSource,
    QueueSource,
    ServerSource,
    SessionSource,
    closing,
)
from perdure.config.backends import BACKENDS
from perdure.errors import ConfigError
from perdure.storage.remote.driver import Looks
from perdure.storage.remote.reader import StateReader

Layout: TypeAlias = Literal["compact", "tbmq"]

_POSTGRES: Final = BACKENDS["postgres"].schemes
_REDIS: Final = BACKENDS["redis"].schemes

_T = TypeVar("_T")


class Closes(Protocol):
    """What a command has opened."""

    async def close(self) -> None:
        """Give back what is open."""
        ...


_S = TypeVar("_S", bound=Closes)


@final
class OpenSource(Generic[_S]):
    """A source and the event loop that its coroutines run in.

    Attributes:
        source: opened.
    """

    def __init__(self, source: _S, runner: asyncio.Runner) -> None:
        self.source = source
        self._runner = runner
        self._begun: list[AsyncIterator[Any]] = []

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a coroutine."""
        return self._runner.run(coroutine)

    def each(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """The items of an asynchronous iterator, page by page."""
        self._begun.append(items)
        return each(self._runner, items)

    async def close(self) -> None:
        """End what nobody has read to its end (`| head`), then close the source."""
        try:
            for items in self._begun:
                async with closing(items):
                    pass
        finally:
            await self.source.close()


@contextlib.contextmanager
def open_server(
    url: str, *, layout: Layout, prefix: str | None, now_us: int
) -> Iterator[OpenSource[ServerSource]]:
    """Open the queues in a server.

    Args:
        url: ``redis://`` and its kin, or ``postgresql://``.
        layout, prefix: of the keys in Redis; None = the layout's own.
        now_us: wall time.

    Raises:
        PerdureError: it cannot be opened.
    """
    with asyncio.Runner() as runner:
        source = runner.run(connect(url, layout=layout, prefix=prefix, now_us=now_us))
        opened = OpenSource(source, runner)
        try:
            yield opened
        finally:
            runner.run(opened.close())


async def connect(url: str, *, layout: Layout, prefix: str | None, now_us: int) -> ServerSource:
    """Open a server on the running loop."""
    scheme = url.partition("://")[0]
    if scheme in _POSTGRES:
        return await _connect_postgres(url, now_us)
    if scheme in _REDIS:
        return await _connect_redis(url, layout, prefix, now_us)
    raise ConfigError(
        f"no store of queues is called {scheme}://",
        hint=f"{', '.join((*_REDIS, *_POSTGRES))}, or a data directory with --data",
    )


async def _connect_postgres(url: str, now_us: int) -> ServerSource:
    with extra("postgres"):
        from perdure.storage.postgres.driver import PostgresDriver
        from perdure.storage.postgres.reader import PostgresQueueReader
    queues = PostgresSource(await PostgresQueueReader.open(url), now_us)
    return await _with_state(PostgresDriver(url), queues, now_us)


async def _connect_redis(url: str, layout: Layout, prefix: str | None, now_us: int) -> ServerSource:
    with extra("redis"):
        from perdure.storage.redis import open_device_queue
        from perdure.storage.redis.compact import DEFAULT_PREFIX
        from perdure.storage.redis.driver import RedisDriver
    queues = DeviceQueueSource(await open_device_queue(url, layout=layout, prefix=prefix), now_us)
    name = (DEFAULT_PREFIX if prefix is None else prefix).removesuffix(":")
    # A broker keeps its state beside queues in our own layout, under the same prefix.
    if layout != "compact" or not name or "{" in name or "}" in name:
        return queues
    return await _with_state(RedisDriver(url, prefix=name), queues, now_us)


async def _with_state(driver: Looks, queues: ServerSource, now_us: int) -> ServerSource:
    """The queues of a server as its broker sees them, if a broker keeps its state there."""
    try:
        state = await StateReader.open(driver) if await driver.look() else None
        if state is not None:
            return BrokerSource(state, queues, now_us)
        await driver.close()
    except BaseException:
        await driver.close()
        await queues.close()
        raise
    return queues


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Import what an extra brings.

    Raises:
        CommandFailed: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise CommandFailed(
            f"{error.name} is not installed", ExitCode.CONFIG, hint=f"pip install 'perdure[{name}]'"
        ) from error


@contextlib.contextmanager
def open_directory(path: Path, *, now_us: int) -> Iterator[OpenSource[QueueSource]]:
    """Open the sessions of a data directory for reading.

    Raises:
        CommandFailed: there is no database.
        StorageError: it cannot be opened.
    """
    with open_database(path) as opened:
        source: QueueSource = SessionSource(opened.database, now_us)
        directory = OpenSource(source, opened.runner)
        try:
            yield directory
        finally:
            opened.run(directory.close())
