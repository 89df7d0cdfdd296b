"""The log and, before it, what retention has dropped from it: from an archive, as one table.

The **seam** is the offset before the first one that the log may still hold. Up to the seam every
row comes from the archive, after it from the log, whatever both of them have; as retention goes on,
the seam moves, and a range that is read again gives the same rows from the other side. The archive
must have got as far as the seam. Knows no Spark.

Without the option ``catalog`` this is the log alone.

Invariant: no row comes twice, and none is left out that the archive ought to have, unless
``missing`` says that it may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, final

import msgspec

from perdure.errors import ConfigError
from perdure.pipeline import log_source, offsets
from perdure.pipeline.archive_parts import ArchivePart, by_store, packed, read_archive
from perdure.pipeline.archive_state import ArchiveState
from perdure.pipeline.archived import Archived, state_of, uncovered
from perdure.pipeline.conditions import Narrowing, earliest_of, latest_of
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.log_index import LogIndex
from perdure.pipeline.log_source import Part
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb.bulk import FilterSets

COUNTED_ROWS: Final = 256
"""How many rows a part will have is an estimate, which tells no fewer apart: they are counted."""


AnyPart: TypeAlias = Part | ArchivePart


@final
class History:
    """An archive, as what comes before a log.

    Args:
        lake: of the archive.
        index: the log.
        skips_missing: leave out what the archive does not have.

    Raises:
        ConfigError: there is no archive, or it is of another log.
    """

    def __init__(self, lake: Lake, index: LogIndex, *, skips_missing: bool) -> None:
        self._lake = lake
        self._state: ArchiveState = state_of(lake, index.database_id)
        self._skips_missing = skips_missing
        oldest = index.generations()[0]
        self.seam = oldest.since_offset - 1
        self.generation = oldest.generation - 1

    def check(self, after: int, until: int, filter_sets: FilterSets) -> None:
        """Make sure that the archive has all of a range of offsets.

        Raises:
            ConfigError: it has not, and that is not to be skipped.
        """
        until = min(until, self.seam)
        if after >= until or self._skips_missing:
            return
        problem = self._missing(after, until, filter_sets)
        if problem:
            raise ConfigError(
                f"{self._lake.place}: {problem}",
                path="missing",
                hint="set option missing to skip to read what there is; retention.keep_for has the "
                "log wait for pipeline archive",
            )

    def _missing(self, after: int, until: int, filter_sets: FilterSets) -> str:
        state = self._state
        if state.position.offset < until:
            return (
                f"the archive ends at offset {state.position.offset}, and the log begins at "
                f"{self.seam + 1}: what was between was dropped"
            )
        for gap in state.gaps:
            if gap.after_offset < until and after < gap.until_offset:
                return (
                    f"messages between offsets {gap.after_offset} and {gap.until_offset} were "
                    "not archived"
                )
        archived = uncovered(state, filter_sets)
        if archived:
            return f"only {', '.join(archived)} was archived"
        return ""

    def archived(self) -> Archived:
        """The files of the archive as they are now."""
        return Archived(self._lake, self._state)


def of(options: ReadOptions, index: LogIndex) -> History | None:
    """The history that options name; None = the log alone."""
    if not options.catalog:
        return None
    lake = options.lake or Lake(options.catalog)
    return History(lake, index, skips_missing=options.skip_missing)


# -- planning ------------------------------------------------------------------------------


def plan(
    index: LogIndex, options: ReadOptions, narrowing: Narrowing, *, shares: bool = False
) -> list[AnyPart]:
    """The parts of a read, older ones first; as many as are wanted, if there are the messages.

    Args:
        index, options, narrowing: what is read.
        shares: parts may be shares of one range; see ``LogFiles.slices``.

    Raises:
        ConfigError: the archive has not all that was asked for.
    """
    parts = _plan(index, options, narrowing, shares=shares)
    rows = options.rows_per_partition
    while len(parts) < options.partitions_min and rows > 1:
        rows //= 2
        finer = msgspec.structs.replace(options, rows_per_partition=rows)
        counted = rows < COUNTED_ROWS
        parts = _plan(index, finer, narrowing, counted=counted, shares=shares)
    return parts


def _plan(
    index: LogIndex,
    options: ReadOptions,
    narrowing: Narrowing,
    *,
    counted: bool = False,
    shares: bool,
) -> list[AnyPart]:
    parts: list[AnyPart] = []
    history = of(options, index)
    if history is not None:
        after = max(options.after_offset, narrowing.after_offset)
        newest = index.newest()
        reach = options.reach(newest.offset if newest else history.seam)
        until = min(reach, narrowing.until_offset, history.seam)
        filter_sets = options.filter_sets + narrowing.filter_sets
        history.check(after, until, filter_sets)
        if after < until:
            parts += [
                ArchivePart(
                    pieces,
                    after,
                    until,
                    filter_sets,
                    latest_of(options.published_from, narrowing.published_from),
                    earliest_of(options.published_until, narrowing.published_until),
                    options.where,
                    store,
                )
                for store, files in by_store(history.archived().files(after, until, filter_sets))
                for pieces in packed(files, options.rows_per_partition)
            ]
        # What the log has lost, the archive has.
        options = msgspec.structs.replace(options, whole=False)
    log = log_source.plan(index, options, narrowing, counted=counted, shares=shares)
    return [*parts, *log]


def latest(
    index: LogIndex, start: StreamPosition, options: ReadOptions, *, rows_max: int, cap: int
) -> StreamPosition:
    """Where the next micro-batch ends, as ``offsets.latest``."""
    history = of(options, index)
    if history is None or start.offset >= history.seam:
        return offsets.latest(index, start, options, rows_max=rows_max, cap=cap)
    check(index, start, options)
    # Retention may pass what was the end of the log when the query began.
    last = min(history.seam, cap)
    if last <= start.offset:
        return start
    if not rows_max and last < cap:
        newest = index.newest()
        if newest is not None and newest.offset > history.seam:
            at_seam = offsets.position(index.database_id, history.generation, history.seam)
            return offsets.latest(index, at_seam, options, rows_max=0, cap=cap)
    until = (
        history.archived().bound(start.offset, last, rows_max, options.filter_sets)
        if rows_max
        else last
    )
    return offsets.position(index.database_id, history.generation, until)


def reached(index: LogIndex) -> int:
    """The offset up to which log, and archive before it, have all that there is now."""
    newest = index.newest()
    return max(newest.offset if newest else 0, index.generations()[-1].since_offset - 1)


def check(index: LogIndex, start: StreamPosition, options: ReadOptions) -> None:
    """Make sure that nothing after a position is missing, as ``offsets.check``."""
    history = of(options, index)
    if history is not None and start.database == index.database_id:
        history.check(start.offset, history.seam, options.filter_sets)
        at_seam = offsets.position(
            index.database_id, history.generation, max(start.offset, history.seam)
        )
        start = start if start.offset >= history.seam else at_seam
    offsets.check(index, start, options)


# -- reading -------------------------------------------------------------------------------


def read(part: AnyPart, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a part as record batches."""
    if isinstance(part, Part):
        yield from log_source.read(part, columns)
        return
    yield from read_archive(part, columns)
