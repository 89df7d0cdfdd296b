"""What planning a read asks of a log, in a directory or behind a broker's HTTP interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from perdure.errors import StorageUnavailable
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.patience import Patience, Unreachable
from perdure.storage.contract import GenerationInfo
from perdure.storage.rocksdb.bulk import FilterSets, LogFiles, Position
from perdure.storage.rocksdb.bulk_slices import Slice
from perdure.storage.rocksdb.page import Page

T = TypeVar("T")


class LogIndex(Protocol):
    """A log as it was at one moment; ``storage.rocksdb.bulk.LogFiles`` says what each means."""

    @property
    def database_id(self) -> str:
        """What tells this database from every other."""
        ...

    def generations(self) -> Sequence[GenerationInfo]:
        """The generations, oldest first."""
        ...

    def newest(self) -> Position | None:
        """The last message; None = nothing is recorded."""
        ...

    def slices(
        self, filter_sets: FilterSets, after_offset: int, until_offset: int, *, rows_max: int
    ) -> list[Slice]:
        """Cut a range into slices of about ``rows_max`` messages."""
        ...

    def bound(self, filter_sets: FilterSets, after: int, until: int, rows_max: int) -> int:
        """The highest offset with at most ``rows_max`` wanted messages up to it."""
        ...

    def patterns(self, generation: int) -> list[str]:
        """The structures that a generation has learned."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class TopicNames(Protocol):
    """What a generation knows of its topics."""

    def topic(self, key: bytes, /) -> str:
        """The topic of a data key."""
        ...

    def pattern(self, stream: int, /) -> str:
        """The structure of a stream."""
        ...

    def streams(self) -> list[tuple[int, str]]:
        """Streams with their structures; empty = none is learned here."""
        ...


class BulkLog(LogIndex, Protocol):
    """A log whose rows can be read too: in a directory, or in a server."""

    def layout(self, generation: int) -> TopicNames:
        """What a generation knows of its topics."""
        ...

    def pages(
        self, filter_sets: FilterSets, part: Slice, *, rows_max: int, bytes_max: int
    ) -> Iterator[Page]:
        """The rows of a slice."""
        ...


def ask(options: ReadOptions, question: Callable[[LogIndex], T]) -> T:
    """What a running query asks of a log: a broker that is away is waited for, and of several nodes
    the next one is asked when one goes away meanwhile, or is behind.

    Raises:
        StorageUnavailable: it was away too long.
        PerdureError: as ``question``.
    """
    remote = options.remote
    if remote is None or not remote.others:
        with opened(options, patient=True) as index:
            return question(index)
    patience = Patience(remote.wait_s)
    while True:
        try:
            with opened(options) as index:
                return question(index)
        except StorageUnavailable as error:
            patience.wait(Unreachable(error.message))
            remote = remote.turned()
            options = options.at(remote)


@contextlib.contextmanager
def opened(options: ReadOptions, *, patient: bool = False) -> Iterator[LogIndex]:
    """The log that options name, as it is now.

    Args:
        options: checked.
        patient: wait for a broker that is away.

    Raises:
        StorageUnavailable: there is none, or the broker cannot be reached.
        ConfigError: the broker refuses.
    """
    index: LogIndex
    if options.remote is not None:
        from perdure.pipeline.remote import open_remote

        index = open_remote(options.remote, patient=patient)
    else:
        index = LogFiles(Path(options.path))
    try:
        yield index
    finally:
        index.close()
