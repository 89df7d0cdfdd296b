"""Opens a broker's state to look into its log: a data directory, or a server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from perdure.cli.data import elsewhere, open_database
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.config.backends import load
from perdure.config.schema import StorageConfig

if TYPE_CHECKING:
    import asyncio

    from perdure.cli.data import OpenDatabase
    from perdure.cli.queue_open import OpenSource
    from perdure.storage.remote.driver import Looks
    from perdure.storage.remote.view import StateView
    from perdure.storage.rocksdb import RocksDatabase

    State: TypeAlias = RocksDatabase | StateView

_T = TypeVar("_T")


class Runs(Protocol):
    """An event loop that something was opened on."""

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a coroutine."""
        ...

    def each(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """The items of an asynchronous iterator, page by page."""
        ...


def is_in_server(storage: StorageConfig) -> bool:
    """Whether the broker keeps its state in a server."""
    return storage.traits.is_server


def place(storage: StorageConfig) -> str:
    """What is looked into, as a person knows it, without secrets."""
    if not is_in_server(storage):
        return storage.path
    return _driver(storage).place


@contextlib.contextmanager
def open_directory_state(storage: StorageConfig) -> Iterator[OpenDatabase]:
    """Open the state in a data directory, beside the broker or without one.

    Raises:
        CommandFailed: there is none.
        StorageError: it cannot be opened.
    """
    if not storage.traits.is_kept:
        raise elsewhere(storage.backend)
    with open_database(Path(storage.path)) as opened:
        yield opened


@contextlib.contextmanager
def open_stored(storage: StorageConfig) -> Iterator[tuple[State, Runs]]:
    """Open whatever state the broker has, to look into it; and what awaits its coroutines.

    Raises:
        CommandFailed: there is none.
        PerdureError: it cannot be opened.
    """
    if is_in_server(storage):
        with open_server_state(storage) as server:
            yield server.source, server
        return
    with open_directory_state(storage) as opened:
        yield opened.database, opened


@contextlib.contextmanager
def open_server_state(storage: StorageConfig) -> Iterator[OpenSource[StateView]]:
    """Open the state in a server, beside the broker or without one.

    Raises:
        CommandFailed: there is none, or the extra is not installed.
        ConfigError: the URL or the password is wrong.
        StorageError: the server cannot be reached.
    """
    import asyncio

    from perdure.cli.queue_open import OpenSource

    with asyncio.Runner() as runner:
        opened = OpenSource(_open(runner, storage), runner)
        try:
            yield opened
        finally:
            runner.run(opened.close())


def _open(runner: asyncio.Runner, storage: StorageConfig) -> StateView:
    from perdure.storage.remote.view import StateView

    driver = _driver(storage)

    async def look() -> StateView:
        try:
            found = await StateView.open(driver) if await driver.look() else None
            if found is None:
                raise CommandFailed(
                    f"no broker keeps its state in {driver.place}",
                    ExitCode.NOT_FOUND,
                    hint=f"storage.{storage.backend} in the configuration says where it is",
                )
        except BaseException:
            await driver.close()
            raise
        return found

    return runner.run(look())


def _driver(storage: StorageConfig) -> Looks:
    from perdure.cli.queue_open import extra

    with extra(storage.traits.extra):
        driver: Looks = load(storage.backend, storage.traits.driver).configured(storage.server, "")
    return driver
