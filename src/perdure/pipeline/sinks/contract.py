"""What a table format must promise for an archive to be exactly once.

Files of data are written first, by many tasks; they are not part of the table. ``commit`` makes
them so, all of them together with the offset up to which the table now holds the log: either all
of it is there after a crash, or nothing. Files that no commit took are left over and never read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from perdure.errors import StorageConflict
from perdure.pipeline.fields import Fields
from perdure.pipeline.lake.layouts import Layout
from perdure.pipeline.lake.stores import Store


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table.

    Attributes:
        table: name of its table.
        path: absolute, on a file system that all see, or a URI of an object store.
        rows: in it.
        size: bytes.
        first, last: lowest and highest offset in it; 0 = not known.
        partition: that all its rows are in (``lake.partitions``); empty = none.
    """

    table: str
    path: str
    rows: int
    size: int
    first: int = 0
    last: int = 0
    partition: str = ""


class Removed(msgspec.Struct, frozen=True):
    """What was deleted because nothing needs it any more.

    Attributes:
        snapshots: earlier states of a table.
        files: of data, that no state of the table has, or that nobody ever committed.
        bytes: in those files.
    """

    snapshots: int
    files: int
    bytes: int


class Sink(Protocol):
    """The tables of one archive, of one database's log.

    Where catalog or store cannot be reached, every method raises ``StorageUnavailable``.
    """

    def begin(self, table: str, schema: Any) -> None:
        """Make a table that does not exist. One that does may have more columns at its end.

        Raises:
            ConfigError: it exists with other columns, or holds the log of another database.
        """
        ...

    def fields(self, table: str, plain: Any) -> Fields:
        """The columns that a table has after those of a schema."""
        ...

    def position(self, table: str) -> int:
        """Everything of the table up to this offset is in it; 0 = nothing was committed."""
        ...

    def data_directory(self, table: str) -> str:
        """Where tasks write files of the next commit: a path that exists, or a URI."""
        ...

    def store(self, table: str) -> Store:
        """How the files of a table are reached."""
        ...

    def layout(self, table: str) -> Layout:
        """How files of the next commit are to be made."""
        ...

    def files(self, table: str) -> list[DataFile]:
        """The files of data that a table has."""
        ...

    def commit(
        self, table: str, files: Sequence[DataFile], *, schema: Any, expected: int, position: int
    ) -> None:
        """Add files to the table and move its position, in one step.

        Args:
            table: its name.
            files: in its data directory.
            schema: what its columns are then: those that it has, and more at the end.
            expected: its position now.
            position: its position then.

        Raises:
            StorageConflict: its position is not the expected one: another archive was here.
        """
        ...

    def replace(
        self,
        table: str,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        *,
        schema: Any,
        expected: int,
    ) -> None:
        """Take files out of the table and put others with the same rows in, in one step.

        Args:
            table: its name.
            old: all its files, if the schema is another one; any of them otherwise.
            new: in its data directory.
            schema: the columns of the new files; types may differ from those before.
            expected: its position, which stays.

        Raises:
            StorageConflict: its position is not the expected one: an archive was here.
        """
        ...

    def clean(self, table: str, *, before_us: int) -> Removed:
        """Forget the table's earlier states, and delete files that nothing needs.

        Args:
            table: its name.
            before_us: wall time; what was made or given up after it is kept.
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


@contextlib.contextmanager
def named_conflict(table: str, lost: type[Exception]) -> Iterator[None]:
    """Name a commit that lost against another one as we do.

    Args:
        table: what was to be changed.
        lost: how the library of the format names it.

    Raises:
        StorageConflict: it did.
    """
    try:
        yield
    except lost as error:
        raise StorageConflict(
            f"table {table} was changed meanwhile: {error}",
            hint="only one archive may write to a table at a time",
        ) from error
