"""What the commands on backups share: options, progress, and who is sent elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.config.schema import StorageConfig
from perdure.config.units import parse_size

_F = TypeVar("_F", bound=Callable[..., Any])

_INSTEAD: Final = {
    "redis": "back up the server: its RDB or AOF files; then the directory",
    "postgres": "back up the server: pg_dump, or a base backup and its WAL; then the directory",
}
_NAMES: Final = {
    "checkpoint": "checkpoint",
    "copy": "copying",
    "fetch": "fetching",
    "manifest": "finishing",
    "sessions": "sessions",
    "check": "checking",
    "verify": "verifying",
}


def backups_option(command: _F) -> _F:
    """Add ``--from``; the command gets the place as ``place``."""
    return click.option(
        "--from",
        "place",
        required=True,
        metavar="PLACE",
        help="Where the backups are: a directory, or s3://bucket/prefix.",
    )(command)


def size_option(name: str, about: str) -> Callable[[_F], _F]:
    """An option that takes a size."""

    def parse(_context: click.Context, _param: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        try:
            return parse_size(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return click.option(name, metavar="SIZE", callback=parse, help=about)


def refuse_server(storage: StorageConfig) -> None:
    """Send those elsewhere who keep nothing in a directory.

    Raises:
        CommandFailed: the state is not in the data directory.
    """
    if storage.traits.is_directory:
        return
    if not storage.traits.is_kept:
        raise CommandFailed(
            f"storage.backend is {storage.backend}: nothing is kept that could be backed up",
            ExitCode.CONFIG,
            hint="storage.backend: rocksdb keeps it",
        )
    raise CommandFailed(
        f"storage.backend is {storage.backend}: sessions and messages are in that server, and "
        "perdure backup copies a directory",
        ExitCode.CONFIG,
        hint=_INSTEAD.get(storage.backend, "back up the server")
        + " (docs/howto/backup.md says in which order)",
    )


@contextlib.contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error if that is a terminal; else nothing is shown."""
    if not wanted or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("start", total=None)
        shown = ""

        def update(what: str, done: int, total: int) -> None:
            nonlocal shown
            if what != shown:
                shown = what
                bars.reset(task, description=_NAMES.get(what, what), total=total or None)
            bars.update(task, completed=done)

        yield update
