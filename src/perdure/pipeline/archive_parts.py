"""Parts of an archive that tasks read: pieces of its files, and which of their rows are wanted.

A part travels to whoever reads it. Knows no Spark and no log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from perdure.content import parse_filter
from perdure.pipeline import log_source
from perdure.pipeline.content import content_of_row
from perdure.pipeline.lake.stores import LOCAL, Store
from perdure.pipeline.options import check_where
from perdure.pipeline.row_groups import Footers, Topics, row_groups
from perdure.pipeline.schema import BY_NAME, TIMESTAMP, arrow_schema
from perdure.pipeline.sinks.contract import DataFile
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.topic.matching import compile_filter

_KEYS: Final = ("offset", "topic")
"""Columns that say whether there is anything in a row group for whoever wants some topics."""


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


def by_store(
    found: Sequence[tuple[DataFile, Store]],
) -> Iterator[tuple[Store, list[DataFile]]]:
    """Files that are reached in one way, together."""
    groups: dict[Store, list[DataFile]] = {}
    for file, store in found:
        groups.setdefault(store, []).append(file)
    yield from groups.items()


def packed(files: Sequence[DataFile], rows_max: int) -> Iterator[tuple[Piece, ...]]:
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


def read_archive(
    part: ArchivePart, columns: Sequence[str], footers: Footers | None = None
) -> Iterator[Any]:
    """The rows of a part as record batches.

    Raises:
        StorageUnavailable: a file is gone, or its store is away.
        StorageCorrupt: it is damaged.
    """
    matcher = Matcher(part)
    wanted = [name for name in BY_NAME if name in columns or name in matcher.columns]
    schema = arrow_schema(columns)
    for piece in part.pieces:
        for rows in _batches(piece, part, wanted, footers or Footers(), matcher):
            kept = rows.filter(matcher(rows))
            if kept.num_rows:
                arrays = [kept.column(name).cast(schema.field(name).type) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batches(
    piece: Piece, part: ArchivePart, columns: list[str], footers: Footers, matcher: Matcher
) -> Iterator[Any]:
    topics = Topics(part.filter_sets)
    with part.store.reading(piece.path), footers.opened(piece.path, part.store) as file:
        for group in row_groups(file, number=piece.number, count=piece.count):
            if group.first > part.until_offset or group.last <= part.after_offset:
                continue
            if not topics.may_be_in(group.low, group.high):
                continue
            if part.filter_sets and not _has_any(file, group.number, matcher):
                continue
            yield from file.iter_batches(
                log_source.PAGE_ROWS, row_groups=[group.number], columns=columns
            )


def _has_any(file: Any, number: int, matcher: Matcher) -> bool:
    """Whether a row group has rows in the range on the topics: payloads are read only then."""
    keys = file.read_row_group(number, columns=list(_KEYS))
    return any(pc.any(matcher.keys(batch)).as_py() for batch in keys.to_batches())


@final
class Matcher:
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
        """Which rows are wanted; one value for each."""
        part = self._part
        mask = self.keys(rows)
        for bound, compare in (
            (part.published_from, pc.greater_equal),
            (part.published_until, pc.less_equal),
        ):
            if bound is not None:
                moment = pa.scalar(bound, TIMESTAMP)
                mask = pc.and_(mask, compare(rows.column("published_at"), moment))
        if self._where is not None:
            mask = pc.and_(mask, self._content(rows, mask))
        return mask

    def keys(self, rows: Any) -> Any:
        """Which rows are in the range and on the topics."""
        part = self._part
        offset = rows.column("offset")
        mask = pc.and_(
            pc.greater(offset, part.after_offset), pc.less_equal(offset, part.until_offset)
        )
        if self._filters:
            mask = pc.and_(mask, self._topics(rows.column("topic")))
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
