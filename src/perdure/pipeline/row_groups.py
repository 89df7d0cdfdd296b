"""Row groups of an archive's files: which may have rows that are wanted, by their statistics.

A row group is what a file is read in. Its footer tells for each the lowest and highest offset and
topic, so that a read of few topics, or of a short range, opens no others. Files never change, so a
footer that was read once holds as long as there is the file.

Invariant: a row group that is passed over has no row that is wanted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, final

import pyarrow.parquet as pq

from perdure.errors import StorageUnavailable
from perdure.pipeline.lake.stores import Store
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.topic.names import is_wildcard

FOOTERS_MAX: Final = 512
"""Footers that are remembered; one takes some kilobytes for each hundred row groups."""


class RowGroup(NamedTuple):
    """One row group.

    Attributes:
        number: in its file.
        first, last: lowest and highest offset in it.
        low, high: lowest and highest topic in it; None = not known.
        row_bytes: about what a row takes in memory.
    """

    number: int
    first: int
    last: int
    low: str | None
    high: str | None
    row_bytes: int


@final
class Topics:
    """What topics may be in a range of them.

    Args:
        filter_sets: wanted topics match a filter of each set.
    """

    def __init__(self, filter_sets: FilterSets) -> None:
        self._sets = [[_begin(each) for each in filters] for filters in filter_sets]

    def may_be_in(self, low: str | None, high: str | None) -> bool:
        """Whether a topic from ``low`` to ``high`` may be wanted."""
        if low is None or high is None:
            return True
        return all(any(_meets(each, low, high) for each in filters) for filters in self._sets)


@final
class Footers:
    """Footers of files that were read last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Any] = OrderedDict()

    def opened(self, path: str, store: Store) -> Any:
        """A file of an archive, opened to be read; close it.

        Raises:
            StorageUnavailable: it is gone, or its store is away.
            StorageCorrupt: it is damaged.
        """
        known = self._known.get(path)
        try:
            with store.reading(path):
                file = pq.ParquetFile(store.opened(path), metadata=known)
        except FileNotFoundError as error:
            self._known.pop(path, None)
            raise StorageUnavailable(
                f"{path} is gone: the archive was maintained while it was to be read",
                hint="read again; pipeline maintain --keep leaves files for slow readers",
            ) from error
        if known is None:
            self._known[path] = file.metadata
            if len(self._known) > FOOTERS_MAX:
                self._known.popitem(last=False)
        return file


def row_groups(file: Any, *, number: int = 0, count: int = 1) -> Iterator[RowGroup]:
    """Row groups of an open file: every ``count``-th, beginning with ``number``."""
    metadata = file.metadata
    names = [metadata.schema.column(each).path for each in range(metadata.num_columns)]
    offset, topic = names.index("offset"), names.index("topic")
    for each in range(number, metadata.num_row_groups, count):
        group = metadata.row_group(each)
        if not group.num_rows:
            continue
        offsets, topics = group.column(offset).statistics, group.column(topic).statistics
        low = high = None
        if topics is not None and topics.has_min_max:
            low, high = topics.min, topics.max
        row_bytes = max(1, group.total_byte_size // group.num_rows)
        yield RowGroup(each, offsets.min, offsets.max, low, high, row_bytes)


def _begin(topic_filter: str) -> tuple[str, bool]:
    """What a topic that matches begins with, and whether it is all of the topic."""
    if not is_wildcard(topic_filter):
        return topic_filter, True
    levels = topic_filter.split("/")
    wild = next(at for at, level in enumerate(levels) if level in {"+", "#"})
    head = "/".join(levels[:wild])
    # ``a/#`` matches ``a`` as well.
    return (head + "/" if wild and levels[wild] == "+" else head), False


def _meets(begin: tuple[str, bool], low: str, high: str) -> bool:
    text, is_whole = begin
    if is_whole:
        return low <= text <= high
    return low[: len(text)] <= text <= high
