"""What commands that write many lines share: a file that appears whole, and a count meanwhile."""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, TextIO, cast

from perdure.cli.exit_codes import CommandFailed, ExitCode

TOLD_EVERY: Final = 1_000
"""Lines between two looks at the clock."""


class Tell(Protocol):
    """Says how far it has come."""

    def __call__(self, done: float, **counts: int) -> None:
        """Show it.

        Args:
            done: of the total.
            counts: those that the text names.
        """


def silent(done: float, **counts: int) -> None:
    """Says nothing."""


@contextlib.contextmanager
def lines_to(target: Path | None) -> Iterator[TextIO]:
    """Where lines go: standard output, or a file that appears once it is complete.

    Args:
        target: the file, compressed if its name ends in ``.gz``; None = standard output.

    Raises:
        CommandFailed: it cannot be written.
    """
    if target is None:
        yield sys.stdout
        return
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            packed = (
                gzip.GzipFile("", "wb", fileobj=file, mtime=0) if target.suffix == ".gz" else file
            )
            with io.TextIOWrapper(
                cast("io.BufferedWriter", packed), encoding="utf-8", newline="\n"
            ) as text:
                yield text
        part.replace(target)
    except OSError as error:
        raise CommandFailed(f"{target}: {error.strerror}", ExitCode.TEMPORARY) from error
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def counting(
    text: str, *, target: Path | None, wanted: bool, total: float | None = None, **counts: int
) -> Iterator[Tell]:
    """A count on standard error, if it is a terminal and the lines do not go to one too.

    Args:
        text: what is shown, with the names of counts in braces.
        target: where the lines go; None = to standard output.
        wanted: somebody wants to see it.
        total: how far it will come; None = nobody knows.
        counts: in the beginning.
    """
    mixed = target is None and sys.stdout.isatty()
    if not wanted or mixed or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    known = (BarColumn(), TimeRemainingColumn()) if total is not None else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *known, TimeElapsedColumn())
    console = Console(stderr=True)
    # It would else take what goes to standard output for its own.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        shown = bar.add_task(text.format(**counts), total=total)

        def tell(done: float, **counts: int) -> None:
            bar.update(shown, completed=done, description=text.format(**counts))

        yield tell
