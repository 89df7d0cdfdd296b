"""The data directory for commands: where it is, and its database opened for reading."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import click

from perdure.cli.contexts import refuse_remote, stay_here
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.settings_options import config_options
from perdure.config.backends import BACKENDS
from perdure.config.document import Origin
from perdure.config.environ import Override
from perdure.config.load import load
from perdure.config.schema import Config, StorageConfig

if TYPE_CHECKING:
    from perdure.storage.rocksdb import RocksDatabase

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")

_GIVEN: Final = click.core.ParameterSource.COMMANDLINE

_BACKEND: Final = "perdure.backend"
"""Where a command's context keeps what ``storage.backend`` says."""

PAGE: Final = 256
"""Items taken from an asynchronous iterator at a time."""


def data_options(command: _F) -> _F:
    """Add ``--data``, ``--config`` and ``--set``; the command gets the directory as ``data``."""

    @storage_options
    @functools.wraps(command)
    def with_data(*args: Any, storage: StorageConfig, **kwargs: Any) -> Any:
        return command(*args, data=Path(storage.path), **kwargs)

    return with_data  # type: ignore[return-value]


def storage_options(command: _F) -> _F:
    """Add the same options; the command gets where the broker keeps its state as ``storage``."""

    @broker_options
    @functools.wraps(command)
    def with_storage(*args: Any, config: Config, **kwargs: Any) -> Any:
        return command(*args, storage=config.storage, **kwargs)

    return with_storage  # type: ignore[return-value]


def broker_options(command: _F) -> _F:
    """Add the same options; the command gets the broker's configuration as ``config``."""

    @click.option(
        "--data",
        "data_option",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Data directory; else storage.path of the configuration.",
    )
    @config_options
    @functools.wraps(command)
    def with_config(
        *args: Any,
        data_option: Path | None,
        config_path: Path | None,
        sets: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        overrides = []
        source = click.get_current_context().get_parameter_source
        if any(source(name) is _GIVEN for name in ("data_option", "config_path", "sets")):
            stay_here()
        if data_option is not None:
            origin = Origin("flag", "--data")
            overrides.append(Override(("storage", "path"), str(data_option), origin))
        loaded = load(config_path, environ=os.environ, sets=sets, overrides=overrides)
        click.get_current_context().meta[_BACKEND] = loaded.config.storage.backend
        return command(*args, config=loaded.config, **kwargs)

    return with_config  # type: ignore[return-value]


@final
class OpenDatabase:
    """A database and the event loop that its coroutines run in.

    Attributes:
        database: opened.
        runner: the loop.
    """

    def __init__(self, database: RocksDatabase, runner: asyncio.Runner) -> None:
        self.database = database
        self.runner = runner

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a coroutine."""
        return self.runner.run(coroutine)

    def each(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """The items of an asynchronous iterator, page by page."""
        return each(self.runner, items)


def each(runner: asyncio.Runner, items: AsyncIterator[_T]) -> Iterator[_T]:
    """The items of an asynchronous iterator, page by page."""
    while page := runner.run(_page(items)):
        yield from page


async def _page(items: AsyncIterator[_T]) -> list[_T]:
    page: list[_T] = []
    async for item in items:
        page.append(item)
        if len(page) == PAGE:
            break
    return page


@contextlib.contextmanager
def open_database(path: Path, *, read_only: bool = True) -> Iterator[OpenDatabase]:
    """Open the database in a data directory.

    Args:
        path: the directory.
        read_only: works beside a running broker; else nobody may have it open.

    Raises:
        CommandFailed: there is no database.
        StorageError: it cannot be opened.
    """
    refuse_remote("looking into a data directory")
    context = click.get_current_context(silent=True)
    backend = context.meta.get(_BACKEND, "rocksdb") if context is not None else "rocksdb"
    if not BACKENDS[backend].is_directory:
        raise elsewhere(backend)
    if not (path / "CURRENT").exists():
        raise CommandFailed(
            f"{path} holds no database",
            ExitCode.NOT_FOUND,
            hint="name the broker's data directory with --data",
        )
    # RocksDB takes long to load: commands that only talk to a broker do without.
    from perdure.storage.rocksdb import RocksDatabase

    database = RocksDatabase.open(path, read_only=read_only)
    try:
        with asyncio.Runner() as runner:
            yield OpenDatabase(database, runner)
    finally:
        database.close()


def database_directory(storage: StorageConfig) -> Path:
    """The data directory, which holds at least parts of a database.

    Raises:
        CommandFailed: it does not.
    """
    refuse_remote("looking into a data directory")
    if not storage.traits.is_directory:
        raise elsewhere(storage.backend)
    path = Path(storage.path)
    if not holds_database(path):
        raise CommandFailed(
            f"{path} holds no database",
            ExitCode.NOT_FOUND,
            hint="name the broker's data directory with --data",
        )
    return path


def holds_database(path: Path) -> bool:
    """Whether it is a directory with at least parts of a database."""
    return path.is_dir() and any(map(_holds_data, path.iterdir()))


def _holds_data(file: Path) -> bool:
    name = file.name
    return name == "CURRENT" or name.startswith("MANIFEST-") or file.suffix in (".sst", ".log")


def elsewhere(backend: str) -> CommandFailed:
    """Nothing can be done in a directory: the broker keeps its state somewhere else."""
    if not BACKENDS[backend].is_kept:
        return CommandFailed(
            f"storage.backend is {backend}: nothing is kept that could be read", ExitCode.NOT_FOUND
        )
    return CommandFailed(
        f"storage.backend is {backend}: this needs the running broker, or a data directory",
        ExitCode.NOT_FOUND,
        hint="perdure sessions, queues and storage look into the server without changing it",
    )


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone.

    Raises:
        click.Abort: the answer is no.
        click.UsageError: nobody is there to ask, and ``--yes`` was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask on: take --yes")
    click.confirm(question, abort=True, err=True)
