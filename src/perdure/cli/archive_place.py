"""Where an archive is: ``--to`` or ``pipeline.tables``, checked before an hour of work."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.pipeline_options import pipeline_installed
from perdure.config.schema import TablesConfig
from perdure.errors import ConfigError, StorageUnavailable

if TYPE_CHECKING:
    from perdure.pipeline.lake.lake import Lake

_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE: Final = ".perdure-probe"
_F = TypeVar("_F", bound=Any)


def to_option(command: _F) -> _F:
    """``--to``, which the command gets as ``to``."""
    option = click.option(
        "--to",
        default="",
        metavar="PLACE",
        help="Directory of the tables, or s3://bucket/path and the like; else "
        "pipeline.tables.place, where catalog and credentials are set too.",
    )
    return option(command)


def missing_option(command: _F) -> _F:
    """``--missing``, which the command gets as ``missing``: ``fail`` or ``skip``."""
    option = click.option(
        "--missing",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="What to do where neither archive nor log has what was asked for.",
    )
    return option(command)


def archive_lake(
    tables: TablesConfig, to: str, *, kind: str | None = None, catalog: str | None = None
) -> Lake:
    """The lake of the configuration, with what the command line says instead.

    Raises:
        CommandFailed: no archive can be there.
    """
    with pipeline_installed():
        from perdure.pipeline.lake.lake import lake_of
    if kind is not None:
        tables = msgspec.structs.replace(tables, format=kind)
    if catalog is not None:
        tables = msgspec.structs.replace(tables, catalog=catalog)
    try:
        lake = lake_of(tables, place=to)
    except ConfigError as error:
        hint = error.hint or f"--to PLACE, or {error.path or 'pipeline.tables.place'}"
        raise CommandFailed(error.message, ExitCode.USAGE, hint=hint) from error
    if lake.is_local and Path(lake.place).exists() and not Path(lake.place).is_dir():
        raise CommandFailed(f"{lake.place} is no directory", ExitCode.USAGE, hint="--to PLACE")
    return lake


def make_place(lake: Lake, data: Path | None) -> None:
    """Make the place of an archive, and prove that it takes writes.

    Args:
        lake: that has it.
        data: data directory of the broker, or None if it is on another machine.

    Raises:
        CommandFailed: the archive cannot be there.
    """
    if not lake.is_local:
        _probe_store(lake)
        return
    to = Path(lake.place)
    if data is not None and to.is_relative_to(data.resolve()):
        raise CommandFailed(
            f"{to} is inside the data directory {data}",
            ExitCode.USAGE,
            hint="everything there belongs to the broker: name a directory beside it",
        )
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=to, prefix=".perdure-", suffix=".probe") as probe:
            probe.write(b"perdure")
            probe.flush()
    except OSError as error:
        code = ExitCode.UNAVAILABLE
        if error.errno in _NOT_ALLOWED:
            code = ExitCode.NOT_PERMITTED
        elif error.errno in _FULL:
            code = ExitCode.TEMPORARY
        raise CommandFailed(
            f"{to} takes no files: {error.strerror or error}",
            code,
            hint="name a directory that this user may write to with --to",
        ) from error


def _probe_store(lake: Lake) -> None:
    path = f"{lake.place}/{_PROBE}"
    try:
        lake.store.write(path, b"perdure")
        lake.store.delete(path)
    except (FileNotFoundError, StorageUnavailable) as error:
        text = str(error)
        refused = "ACCESS_DENIED" in text or "Forbidden" in text or "HTTP 403" in text
        raise CommandFailed(
            f"{lake.place} takes no files: {lake.store.redact(text)}",
            ExitCode.NOT_PERMITTED if refused else ExitCode.UNAVAILABLE,
            hint="endpoint, region and credentials are in pipeline.tables.properties or in the "
            "store's own environment variables; the bucket must exist",
        ) from None
