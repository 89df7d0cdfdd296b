"""Passwords from where no other process reads them: standard input, a file, or the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode

SECRET_BYTES_MAX: Final = 65_535
"""Longest password in CONNECT (MQTT 5.0 section 3.1.3.6)."""

_F = TypeVar("_F", bound=Callable[..., Any])


def secret_options(command: _F) -> _F:
    """Add ``--password-file`` and ``--stdin``; and give them to the command."""
    command = click.option(
        "--stdin", "from_stdin", is_flag=True, help="Read the password from standard input."
    )(command)
    return click.option(
        "--password-file",
        type=click.Path(path_type=Path),
        help="Read the password from a file.",
    )(command)


def read_secret(path: Path | None, *, from_stdin: bool, user: str) -> str:
    """The password that was given, or asked for at the terminal.

    Raises:
        click.UsageError: nobody is there to ask.
        CommandFailed: it cannot be read.
    """
    if path is not None and from_stdin:
        raise click.UsageError("take one of --password-file and --stdin")
    if path is not None:
        try:
            with path.open("rb") as file:
                return _decode(file.read(SECRET_BYTES_MAX + 3), str(path))
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}", ExitCode.DATA) from error
    if from_stdin:
        return _decode(sys.stdin.buffer.read(SECRET_BYTES_MAX + 3), "standard input")
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask on: take --stdin or --password-file")
    password: str = click.prompt(
        f"Password for {user}", hide_input=True, confirmation_prompt=True, err=True
    )
    return password


def _decode(data: bytes, name: str) -> str:
    """The secret without the line end that an editor or ``echo`` adds."""
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) > SECRET_BYTES_MAX:
        raise CommandFailed(f"{name}: longer than {SECRET_BYTES_MAX} bytes", ExitCode.DATA)
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise CommandFailed(f"{name}: not UTF-8 text", ExitCode.DATA) from None
