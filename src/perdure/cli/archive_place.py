"""Where an archive is: ``--to``, checked before an hour of work and not after it."""

from __future__ import annotations

import errno
import re
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_TODAY: Final = (
    "an archive is written to a directory today: give one on a local or mounted file system, and "
    "copy it to the store, or mount the bucket"
)
_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def archive_place(_context: click.Context, option: click.Parameter, text: str) -> Path:
    """A directory that was named by its path, or as ``file:///path``."""
    found = _SCHEME.match(text)
    if found is not None:
        scheme = found[1].lower()
        if scheme != "file":
            raise click.BadParameter(f"{scheme}:// is not supported: {_TODAY}", param=option)
        parts = urlsplit(text)
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise click.BadParameter(
                f"{text} is no file on this machine: file:///path, or the path alone", param=option
            )
        text = unquote(parts.path)
    if not text.strip():
        raise click.BadParameter("names no directory", param=option)
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise click.BadParameter(f"{path} is no directory", param=option)
    return path


def make_place(to: Path, data: Path | None) -> None:
    """Make the directory of an archive, and prove that it takes writes.

    Args:
        to: the directory.
        data: data directory of the broker, or None if it is on another machine.

    Raises:
        CommandFailed: the archive cannot be there.
    """
    if data is not None and to.resolve().is_relative_to(data.resolve()):
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
