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
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perdure.content import parse_filter
from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline import log_source, offsets
from perdure.pipeline.archive_state import ArchiveState, load_state
from perdure.pipeline.conditions import Narrowing, earliest_of, latest_of
from perdure.pipeline.content import content_of_row
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.stores import LOCAL, Store
from perdure.pipeline.log_index import LogIndex
from perdure.pipeline.log_source import Part
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions, check_where
from perdure.pipeline.schema import BY_NAME, TIMESTAMP, arrow_schema
from perdure.pipeline.sinks.contract import DataFile
from perdure.pipeline.sinks.opening import open_sink
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.topic.matching import compile_filter, covers

COUNTED_ROWS: Final = 256
"""How many rows a part will have is an estimate, which tells no fewer apart: they are counted."""


class Piece(msgspec.Struct, frozen=True):
    """Row groups of a file: every ``count``-th, beginning with ``number``."""

    path: str
    number: int
    count: int


class ArchivePart(msgspec.Struct, frozen=True):
    """What one task reads of an archive.

    Attributes:
        pieces: of files.
        after_offset: exclusive.
        until_offset: inclusive.
        filter_sets: wanted topics.
        published_from, published_until: bounds of ``published_at``, or None.
        where: a content filter, or empty.
        store: how the files are reached.
    """

    pieces: tuple[Piece, ...]
    after_offset: int
    until_offset: int
    filter_sets: FilterSets
    published_from: int | None = None
    published_until: int | None = None
    where: str = ""
    store: Store = LOCAL


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
        state = load_state(lake.place, lake.store)
        if state is None:
            raise ConfigError(
                f"{lake.place} holds no archive",
                path="catalog",
                hint="name the directory or store that pipeline archive --to wrote to",
            )
        if state.position.database != index.database_id:
            raise ConfigError(f"{lake.place} holds the archive of another log", path="catalog")
        self._lake = state.within(lake)
        self._state: ArchiveState = state
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
        for archived in state.filter_sets:
            if not any(
                all(any(covers(wide, narrow) for wide in archived) for narrow in filters)
                for filters in filter_sets
            ):
                return f"only {', '.join(archived)} was archived"
        return ""

    def files(self, after: int, until: int) -> list[tuple[DataFile, Store]]:
        """Files of all tables that may hold rows of a range, and how they are reached."""
        state = self._state
        sink = open_sink(self._lake, state.position.database)
        found: list[tuple[DataFile, Store]] = []
        try:
            for spec in state.tables:
                store = sink.store(spec.name)
                found += [(file, store) for file in sink.files(spec.name)]
        finally:
            sink.close()
        return [
            (file, store)
            for file, store in found
            if not file.last or (file.first <= until and file.last > after)
        ]

    def bound(self, after: int, until: int, rows_max: int) -> int:
        """The highest offset up to one before the log with at most ``rows_max`` messages after
        ``after``."""
        files = sorted(self.files(after, until), key=lambda found: found[0].first)
        known: Any = np.empty(0, dtype=np.int64)
        for number, (file, store) in enumerate(files):
            with pq.ParquetFile(store.opened(file.path)) as opened:
                column = opened.read(columns=["offset"])
            values: Any = column.column("offset").to_numpy()
            values = values[(values > after) & (values <= until)]
            known = np.sort(np.concatenate([known, values]))
            # Files that begin later have nothing below their begin.
            settled = files[number + 1][0].first if number + 1 < len(files) else until + 1
            if len(known) > rows_max and int(known[rows_max]) < settled:
                return int(known[rows_max - 1])
            # A few more than are needed are enough to go on with.
            known = known[: rows_max + 1]
        if len(known) > rows_max:
            return int(known[rows_max - 1])
        return until


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
                for store, files in _by_store(history.files(after, until))
                for pieces in _packed(files, options.rows_per_partition)
            ]
        # What the log has lost, the archive has.
        options = msgspec.structs.replace(options, whole=False)
    log = log_source.plan(index, options, narrowing, counted=counted, shares=shares)
    return [*parts, *log]


def _by_store(
    found: Sequence[tuple[DataFile, Store]],
) -> Iterator[tuple[Store, list[DataFile]]]:
    """Files that are reached in one way, together."""
    groups: dict[Store, list[DataFile]] = {}
    for file, store in found:
        groups.setdefault(store, []).append(file)
    yield from groups.items()


def _packed(files: Sequence[DataFile], rows_max: int) -> Iterator[tuple[Piece, ...]]:
    """Files together, or in pieces, so that each group has about ``rows_max`` rows."""
    group: list[Piece] = []
    rows = 0
    for file in sorted(files, key=lambda file: (file.first, file.path)):
        count = max(1, round(file.rows / rows_max))
        if count > 1:
            for number in range(count):
                yield (Piece(file.path, number, count),)
            continue
        if group and rows + file.rows > rows_max:
            yield tuple(group)
            group, rows = [], 0
        group.append(Piece(file.path, 0, 1))
        rows += file.rows
    if group:
        yield tuple(group)


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
    until = history.bound(start.offset, last, rows_max) if rows_max else last
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
    matcher = _Matcher(part)
    wanted = [name for name in BY_NAME if name in columns or name in matcher.columns]
    schema = arrow_schema(columns)
    for piece in part.pieces:
        for rows in _batches(piece, part, wanted):
            kept = rows.filter(matcher(rows))
            if kept.num_rows:
                arrays = [kept.column(name).cast(schema.field(name).type) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batches(piece: Piece, part: ArchivePart, columns: list[str]) -> Iterator[Any]:
    try:
        file = pq.ParquetFile(part.store.opened(piece.path))
    except FileNotFoundError as error:
        raise StorageUnavailable(
            f"{piece.path} is gone: the archive was maintained while it was to be read",
            hint="read again; pipeline maintain --keep leaves files for slow readers",
        ) from error
    with file:
        metadata = file.metadata
        index = [metadata.schema.column(n).path for n in range(metadata.num_columns)].index(
            "offset"
        )
        for number in range(piece.number, metadata.num_row_groups, piece.count):
            bounds = metadata.row_group(number).column(index).statistics
            if bounds.min <= part.until_offset and bounds.max > part.after_offset:
                yield from file.iter_batches(
                    log_source.PAGE_ROWS, row_groups=[number], columns=columns
                )


class _Matcher:
    """Which rows of a batch a part wants."""

    def __init__(self, part: ArchivePart) -> None:
        self._part = part
        self._filters = [[compile_filter(each) for each in one] for one in part.filter_sets]
        self._where = parse_filter(check_where(part.where)) if part.where else None
        self.columns = {"offset"}
        if self._filters:
            self.columns.add("topic")
        if part.published_from is not None or part.published_until is not None:
            self.columns.add("published_at")
        if self._where is not None:
            self.columns |= {"payload", "content_type", "topic"}
            if self._where.uses_properties:
                self.columns.add("user_properties")

    def __call__(self, rows: Any) -> Any:
        part = self._part
        offset = rows.column("offset")
        mask = pc.and_(
            pc.greater(offset, part.after_offset), pc.less_equal(offset, part.until_offset)
        )
        for bound, compare in (
            (part.published_from, pc.greater_equal),
            (part.published_until, pc.less_equal),
        ):
            if bound is not None:
                moment = pa.scalar(bound, TIMESTAMP)
                mask = pc.and_(mask, compare(rows.column("published_at"), moment))
        if self._filters:
            mask = pc.and_(mask, self._topics(rows.column("topic")))
        if self._where is not None:
            mask = pc.and_(mask, self._content(rows, mask))
        return mask

    def _topics(self, topics: Any) -> Any:
        coded = topics.dictionary_encode()
        hits = [
            all(any(one.matches(topic) for one in filters) for filters in self._filters)
            for topic in coded.dictionary.to_pylist()
        ]
        return pa.array(hits, pa.bool_()).take(coded.indices)

    def _content(self, rows: Any, mask: Any) -> Any:
        assert self._where is not None
        holds = self._where.holds_for
        payloads = rows.column("payload")
        types, topics = (rows.column(each).to_pylist() for each in ("content_type", "topic"))
        pairs: Sequence[Any] = [None] * len(payloads)
        if self._where.uses_properties:
            pairs = rows.column("user_properties").to_pylist()
        found = [
            bool(wanted) and holds(content_of_row(payload.as_py(), content_type, properties, topic))
            for wanted, payload, content_type, properties, topic in zip(
                mask.to_pylist(), payloads, types, pairs, topics, strict=True
            )
        ]
        return pa.array(found, pa.bool_())
