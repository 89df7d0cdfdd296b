"""What a table format must promise for an archive to be exactly once.

Files of data are written first, by many tasks; they are not part of the table. ``commit`` makes
them so, all of them together with the offset up to which the table now holds the log: either all
of it is there after a crash, or nothing. Files that no commit took are left over and never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from perdure.errors import StorageConflict


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file that a task has written.

    Attributes:
        table: name of its table.
        path: absolute, on a file system that all see.
        rows: in it.
        size: bytes.
    """

    table: str
    path: str
    rows: int
    size: int


class Sink(Protocol):
    """The tables of one archive, of one database's log."""

    def begin(self, table: str, schema: Any) -> None:
        """Make a table that does not exist.

        Raises:
            ConfigError: it exists with other columns, or holds the log of another database.
        """
        ...

    def position(self, table: str) -> int:
        """Everything of the table up to this offset is in it; 0 = nothing was committed."""
        ...

    def data_directory(self, table: str) -> str:
        """Where tasks write files of the next commit; exists."""
        ...

    def commit(
        self, table: str, files: Sequence[DataFile], *, expected: int, position: int
    ) -> None:
        """Add files to the table and move its position, in one step.

        Raises:
            StorageConflict: its position is not the expected one: another archive was here.
        """
        ...

    def close(self) -> None:
        """Let go of what was prepared and is not used."""
        ...


def check_position(table: str, found: int, expected: int) -> None:
    """Refuse a commit on a table that someone else has moved."""
    if found != expected:
        raise StorageConflict(
            f"table {table} was moved from offset {expected} to {found} meanwhile",
            hint="only one archive may write to a table at a time",
        )
