"""The tables of an archive as one, by offset: which of their files may have rows of a range, and
how far a number of wanted rows reaches. Knows no log.

What was archived up to an offset never changes, whatever maintenance does to the files that it is
in; a list of files holds until one of them is gone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from perdure.errors import ConfigError
from perdure.pipeline.archive_parts import ArchivePart, Matcher
from perdure.pipeline.archive_state import ArchiveState, load_state
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.stores import Store
from perdure.pipeline.row_groups import Footers, RowGroup, Topics, row_groups
from perdure.pipeline.sinks.contract import DataFile
from perdure.pipeline.sinks.opening import open_sink
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.topic.matching import covers, intersects

_EVERY: Final = ""
"""The filter of a table that takes what others do not."""


def state_of(lake: Lake, database: str) -> ArchiveState:
    """The state of the archive of a log.

    Args:
        lake: that has it.
        database: identity of the log.

    Raises:
        ConfigError: there is no archive, or it is of another log.
        StorageError: it cannot be read.
    """
    state = load_state(lake.place, lake.store)
    if state is None:
        raise ConfigError(
            f"{lake.place} holds no archive",
            path="catalog",
            hint="name the directory or store that pipeline archive --to wrote to",
        )
    if state.position.database != database:
        raise ConfigError(f"{lake.place} holds the archive of another log", path="catalog")
    return state


def uncovered(state: ArchiveState, filter_sets: FilterSets) -> tuple[str, ...]:
    """Filters that were archived, if something that is wanted matches none of them; else empty."""
    for archived in state.filter_sets:
        if not any(
            all(any(covers(wide, narrow) for wide in archived) for narrow in filters)
            for filters in filter_sets
        ):
            return archived
    return ()


@final
class Archived:
    """The files of an archive as they are now.

    Args:
        lake: that has it.
        state: of it.
        footers: of files that were read before.

    Raises:
        StorageError: they cannot be listed.
    """

    def __init__(self, lake: Lake, state: ArchiveState, footers: Footers | None = None) -> None:
        self._footers = footers or Footers()
        self._filters: dict[str, set[str]] = {}
        for plan in state.plans:
            for spec in plan.tables:
                # A table may have had another pattern once, and its rows are still there.
                self._filters.setdefault(spec.name, set()).add(spec.filter or _EVERY)
        sink = open_sink(state.within(lake), state.position.database)
        try:
            self._files: list[tuple[DataFile, Store]] = []
            for spec in state.tables:
                store = sink.store(spec.name)
                self._files += [(file, store) for file in sink.files(spec.name)]
        finally:
            sink.close()

    def files(
        self, after: int, until: int, filter_sets: FilterSets = ()
    ) -> list[tuple[DataFile, Store]]:
        """Files of all tables that may hold rows of a range, and how they are reached."""
        return [
            (file, store)
            for file, store in self._files
            if (not file.last or (file.first <= until and file.last > after))
            and self._takes(file.table, filter_sets)
        ]

    def bound(
        self,
        after: int,
        until: int,
        rows_max: int,
        filter_sets: FilterSets = (),
        *,
        has_time: Callable[[], bool] = lambda: True,
    ) -> int:
        """The highest offset with at most ``rows_max`` wanted messages after ``after``.

        Args:
            after, until: the range.
            rows_max: at least 1.
            filter_sets: of wanted topics.
            has_time: once it says no, the offset up to which all was looked at is enough.
        """
        part = ArchivePart((), after, until, filter_sets)
        matcher, topics = Matcher(part), Topics(filter_sets)
        known: Any = np.empty(0, dtype=np.int64)
        # Files and row groups by the first offset that they may have.
        ahead: list[tuple[int, int, DataFile, Store, RowGroup | None]] = []
        for number, (file, store) in enumerate(self.files(after, until, filter_sets)):
            ahead.append((file.first, number, file, store, None))
        heapq.heapify(ahead)
        count = len(ahead)
        while ahead:
            settled = ahead[0][0] - 1
            if len(known) > rows_max and int(known[rows_max]) <= settled:
                break
            if after < settled < until and not has_time():
                return min(settled, int(known[rows_max - 1])) if len(known) > rows_max else settled
            _, _, file, store, group = heapq.heappop(ahead)
            with store.reading(file.path), self._footers.opened(file.path, store) as opened:
                if group is None:
                    for each in row_groups(opened):
                        is_near = each.first <= until and each.last > after
                        if is_near and topics.may_be_in(each.low, each.high):
                            heapq.heappush(ahead, (each.first, count, file, store, each))
                            count += 1
                    continue
                columns = ["offset", "topic"] if filter_sets else ["offset"]
                rows = opened.read_row_group(group.number, columns=columns)
            for batch in rows.to_batches():
                values = batch.filter(matcher.keys(batch)).column("offset").to_numpy()
                known = np.concatenate([known, values])
            # A few more than are needed are enough to go on with.
            known = np.sort(known)[: rows_max + 1]
        return int(known[rows_max - 1]) if len(known) > rows_max else until

    def _takes(self, table: str, filter_sets: FilterSets) -> bool:
        """Whether a table may ever have had rows on the topics."""
        return all(
            any(
                own == _EVERY or intersects(own, each)
                for own in self._filters[table]
                for each in filters
            )
            for filters in filter_sets
        )
