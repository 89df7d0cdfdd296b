"""Commands that only a running broker answers: a request of the table, and its answer printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.admin.operation import Page, Request
from perdure.cli.admin_client import AdminClient
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output

R = TypeVar("R")
T = TypeVar("T")


def not_running(data: Path) -> CommandFailed:
    """The error of a command that only a broker can carry out."""
    return CommandFailed(
        f"no broker runs on {data}",
        ExitCode.UNAVAILABLE,
        hint="start it, or name its data directory with --data",
    )


@contextmanager
def running_broker(data: Path) -> Iterator[AdminClient]:
    """A connection to the broker of a data directory.

    Raises:
        CommandFailed: none runs.
    """
    client = AdminClient.connect(data)
    if client is None:
        raise not_running(data)
    with client:
        yield client


def print_list(
    data: Path, request: Request[Page[T]], columns: tuple[Column, ...], out: Output
) -> None:
    """Print all pages of a list."""
    with running_broker(data) as client:
        out.rows(columns, map(msgspec.to_builtins, client.items(request)))


def print_record(data: Path, request: Request[R], out: Output) -> R:
    """Print one answer."""
    with running_broker(data) as client:
        answer = client.call(request)
    out.record(msgspec.to_builtins(answer))
    return answer
