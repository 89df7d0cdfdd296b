"""Plans and reads parts of a log as Arrow record batches. Knows no Spark.

``plan`` runs where the query is planned, ``read`` in whatever process got the part: what passes
between them is plain data. A process keeps the directory open from one part of a query to the
next, because opening replays what the broker has not yet flushed to table files. The rows of a
part behind ``url`` are read by the broker's HTTP interface, with ``scan`` too.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.errors import StorageUnavailable
from perdure.limits import OFFSET_MAX
from perdure.pipeline import offsets
from perdure.pipeline.address import Remote
from perdure.pipeline.conditions import CLOCK_BACK_MAX_US, Narrowing, earliest_of, latest_of
from perdure.pipeline.content import ContentKernel
from perdure.pipeline.decode import Names, decode_page
from perdure.pipeline.log_index import BulkLog, LogIndex
from perdure.pipeline.options import ROWS_PER_PARTITION, ReadOptions
from perdure.pipeline.patience import Patience, Unreachable
from perdure.pipeline.protocol import RowQuery
from perdure.pipeline.remote import RemoteLog, read_rows
from perdure.storage.contract import GenerationInfo
from perdure.storage.rocksdb.blocks import Opener
from perdure.storage.rocksdb.bulk import PAGE_BYTES_MAX, FilterSets, LogFiles
from perdure.storage.rocksdb.bulk_slices import Slice, pack_slices
from perdure.storage.rocksdb.following import Follower

_FOLLOWED_MAX: Final = 4
"""Directories that a process follows."""

PAGE_ROWS: Final = 16_384
"""Rows of a record batch, at least; smaller and larger ones were slower."""

NOT_LEARNED: Final = "#"
"""Structure of messages in a log that learns none."""


class Part(msgspec.Struct, frozen=True):
    """What one task reads.

    Attributes:
        path: data directory, or empty.
        database_id: that must be in it.
        query: parts with the same one may share an open directory.
        slices: ranges, oldest first.
        filter_sets: wanted topics.
        published_from, published_until: bounds of ``published_at``, or None.
        remote: the broker to read from instead of ``path``, or None.
        where: a content filter, or empty.
        sequence: of a query of Spark's: the number of the last write that was seen where it was
            planned; a process keeps one view of the directory for its micro-batches and for the
            next queries. None = the view is for this query alone.
    """

    path: str
    database_id: str
    query: str
    slices: tuple[Slice, ...]
    filter_sets: FilterSets
    published_from: int | None = None
    published_until: int | None = None
    remote: Remote | None = None
    where: str = ""
    sequence: int | None = None


def plan(
    files: LogIndex,
    options: ReadOptions,
    narrowing: Narrowing,
    *,
    counted: bool = False,
    shares: bool = False,
) -> list[Part]:
    """The parts of a read: of about equal size, in the order of the log.

    Args:
        files, options, narrowing: what is read.
        counted: cut where just so many messages are, which reads them: for a few.
        shares: parts may be shares of one range; see ``LogFiles.slices``.
    """
    filter_sets = options.filter_sets + narrowing.filter_sets
    after = max(options.after_offset, narrowing.after_offset)
    newest = files.newest()
    if options.whole:
        offsets.check_whole(files, after, options.place)
        if options.published_until is None and options.until_offset != OFFSET_MAX:
            offsets.check_reach(files, options.until_offset, options)
    if newest is None:
        return []
    until = min(options.reach(newest.offset), narrowing.until_offset)
    if after >= until:
        return []
    rows, until = options.rows_per_partition, min(until, newest.offset)
    if shares and not counted and isinstance(files, LogFiles):
        slices = files.slices(filter_sets, after, until, rows_max=rows, shares=True)
    else:
        slices = files.slices(filter_sets, after, until, rows_max=rows)
    if counted:
        slices = [piece for each in slices for piece in _counted(files, filter_sets, each, rows)]
    if narrowing.published_until is not None:
        slices = _published_before(files.generations(), slices, narrowing.published_until)
    query, remote = uuid.uuid4().hex, options.remote
    if isinstance(files, RemoteLog):
        # A view is known where it was opened, and nowhere else.
        query = files.view
        remote = options.remote.beginning_at(files.remote.url) if options.remote else files.remote
    sequence = files.sequence if isinstance(files, LogFiles) and files.follows else None
    return [
        Part(
            path=options.path,
            database_id=files.database_id,
            query=query,
            slices=group,
            filter_sets=filter_sets,
            published_from=latest_of(options.published_from, narrowing.published_from),
            published_until=earliest_of(options.published_until, narrowing.published_until),
            remote=remote,
            where=options.where,
            sequence=sequence,
        )
        for group in pack_slices(slices, rows_max=options.rows_per_partition)
    ]


def _counted(files: LogIndex, filter_sets: FilterSets, part: Slice, rows: int) -> Iterator[Slice]:
    """A slice in pieces with so many messages each."""
    after = part.after_offset
    while after < part.until_offset:
        until = files.bound(filter_sets, after, part.until_offset, rows)
        yield Slice(part.generation, after, until, rows)
        after = until


def about_rows(files: LogIndex, options: ReadOptions) -> int:
    """How many messages a read looks at, about; not those of an archive."""
    return sum(each.estimate for part in plan(files, options, Narrowing()) for each in part.slices)


def _published_before(
    generations: Sequence[GenerationInfo], slices: Sequence[Slice], until_us: int
) -> list[Slice]:
    """Slices without those that are surely later than a moment."""
    # Offsets that were ahead of the clock when a generation began tell of a clock that had been
    # far in the future: there the offset says nothing about the time.
    sound = {
        info.generation
        for info in generations
        if info.since_offset - info.created_at_us <= CLOCK_BACK_MAX_US
    }
    bound = until_us + CLOCK_BACK_MAX_US
    kept = []
    for part in slices:
        if part.generation not in sound or part.until_offset <= bound:
            kept.append(part)
        elif part.after_offset < bound:
            kept.append(msgspec.structs.replace(part, until_offset=bound))
    return kept


def read(part: Part, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a part as record batches.

    Raises:
        StorageUnavailable: a generation was dropped meanwhile, or the directory is another one.
    """
    if part.remote is not None:
        if part.remote.others:
            yield from _read_of_several(part, part.remote, columns)
            return
        yield from read_rows(part.remote, _row_query(part, columns, part.remote.compression))
        return
    with _opened.use(part) as files:
        for _, batch in scan(files, _row_query(part, columns, "")):
            if batch.num_rows:
                yield batch


def _read_of_several(part: Part, remote: Remote, columns: Sequence[str]) -> Iterator[Any]:
    """The rows of a part from the node where it was planned, or, if that one goes away meanwhile,
    what is left of them from the next one that has them.

    Slices are of one node, offsets are the same on all of them. So another one plans the part's
    range anew, and what has been given by then is left out.
    """
    taken = Taken(columns)
    patience = Patience(remote.wait_s)
    planned: Part | None = part
    while True:
        problem = ""
        for each in remote.each:
            try:
                asked = planned or _planned_at(part, each)
                planned = None
                query = _row_query(asked, taken.wanted, each.compression)
                for batch in read_rows(each, query, patience=Patience(0)):
                    patience.reset()
                    fresh = taken.take(batch)
                    if fresh.num_rows:
                        yield fresh
            except StorageUnavailable as error:
                problem = error.message
                taken.has_failed = True
            else:
                return
        patience.wait(Unreachable(problem))


def _planned_at(part: Part, remote: Remote) -> Part:
    """A part as another node has it.

    Raises:
        StorageUnavailable: it is away, behind, or has dropped some of it.
    """
    log = RemoteLog(remote)
    if log.database_id != part.database_id:
        raise StorageUnavailable(f"{remote.url} is not a node of the same cluster")
    after, until = part.slices[0].after_offset, part.slices[-1].until_offset
    offsets.check_whole(log, after, remote.url)
    newest = log.newest()
    if newest is None or newest.offset < until:
        raise StorageUnavailable(f"{remote.url} has not come to offset {until} yet")
    slices = log.slices(part.filter_sets, after, until, rows_max=ROWS_PER_PARTITION)
    return msgspec.structs.replace(part, query=log.view, slices=tuple(slices), remote=remote)


@final
class Taken:
    """The offsets of rows that were given, for somebody who has to begin anew.

    Args:
        columns: that are given, in order.

    Attributes:
        has_failed: reading has begun anew.
        wanted: columns to read for them.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.has_failed = False
        self.wanted = [*columns, *(() if "offset" in columns else ("offset",))]
        self._columns = list(columns)
        self._offsets: list[Any] = []

    def take(self, batch: Any) -> Any:
        """Those rows that were not given yet, which are now; before a failure all of them."""
        fresh = self._fresh(batch).select(self._columns)
        # A copy: a column keeps all of its batch in memory.
        self._offsets.append(batch.column("offset").to_numpy().copy())
        return fresh

    def _fresh(self, batch: Any) -> Any:
        if not self.has_failed or not self._offsets:
            return batch
        import pyarrow as pa
        from pyarrow import compute

        given = pa.chunked_array(self._offsets, pa.int64())
        return batch.filter(compute.invert(compute.is_in(batch.column("offset"), given)))


def _row_query(part: Part, columns: Sequence[str], compression: str) -> RowQuery:
    return RowQuery(
        view=part.query,
        database_id=part.database_id,
        slices=part.slices,
        filter_sets=part.filter_sets,
        columns=tuple(columns),
        published_from=part.published_from,
        published_until=part.published_until,
        where=part.where,
        compression=compression,
    )


def scan(
    files: BulkLog, query: RowQuery, *, rows_max: int = PAGE_ROWS, bytes_max: int = PAGE_BYTES_MAX
) -> Iterator[tuple[int, Any]]:
    """The rows that a query asks for, as record batches that may be empty.

    Each comes with the position behind it: how many rows were read, of which conditions may have
    left some out. A scan that begins at a position gives what followed there, because the rows
    of a slice come in the same order from any view of the log.
    """
    position, left = query.position, query.position
    keep = ContentKernel(query.where) if query.where else None
    for each in query.slices:
        layout = files.layout(each.generation)
        structure = "" if layout.streams() else NOT_LEARNED
        names = Names(each.generation, layout.topic, layout.pattern, structure)
        pages = files.pages(query.filter_sets, each, rows_max=rows_max, bytes_max=bytes_max)
        for page in pages:
            if left >= len(page):
                left -= len(page)
                continue
            if left:
                page, left = page.behind(left), 0
            position += len(page)
            yield (
                position,
                decode_page(
                    page,
                    query.columns,
                    names,
                    published_from=query.published_from,
                    published_until=query.published_until,
                    keep=keep,
                ),
            )


class _Opened:
    """The directory that this process read last."""

    def __init__(self) -> None:
        self._query = ""
        self._files: LogFiles | None = None
        self._followed: dict[str, Follower] = {}

    @contextlib.contextmanager
    def use(self, part: Part) -> Iterator[LogFiles]:
        if part.sequence is None:
            yield self._checked(self._of_query(part), part)
            return
        follower = self.follower(part.path)
        with follower.look(sequence=part.sequence, query=part.query) as files:
            yield self._checked(files, part)

    def follower(self, path: str) -> Follower:
        """What keeps a view of a directory."""
        found = self._followed.get(path)
        if found is None:
            while len(self._followed) >= _FOLLOWED_MAX:
                self._followed.pop(next(iter(self._followed))).close()
            found = Follower(Path(path), mapped=True, blocks=block_reader())
            self._followed[path] = found
        return found

    def _of_query(self, part: Part) -> LogFiles:
        if self._files is None or self._query != part.query:
            if self._files is not None:
                self._files.close()
                self._files = None
            path, blocks = Path(part.path), block_reader()
            self._files = LogFiles(path, mapped=True, blocks=blocks)
            self._query = part.query
        return self._files

    def _checked(self, files: LogFiles, part: Part) -> LogFiles:
        if files.database_id != part.database_id:
            raise StorageUnavailable(
                f"{part.path} holds another database than the one this query was planned for"
            )
        return files


def followed(path: str) -> AbstractContextManager[LogFiles]:
    """The log in a directory as it is now, by a view that is kept for the next query."""
    return _opened.follower(path).look()


def block_reader() -> Opener | None:
    """Who reads table files as they lie; None = what checks their blocks is not installed."""
    try:
        from perdure.pipeline.block_rows import BlockRows
    except ImportError:
        return None
    return BlockRows


_opened = _Opened()
