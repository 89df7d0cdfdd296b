"""What a broker's HTTP interface and a reader of its log say to each other. Knows no Arrow.

All of it is below ``/api/v1/storage/databases/log``::

    GET  .                    Description: which database, how far it reaches, its generations
    POST slices  SliceQuery   Slices: a range, cut into parts of about equal size
    POST bound   BoundQuery   Bound: where a micro-batch of some rows ends
    POST read    RowQuery     an Arrow IPC stream with the rows of some slices
    GET  cursors              Cursors: how far pipelines have read it
    POST cursors PipelineCursor  keeps one, for retention
    POST runs PipelineRun     keeps how one's jobs are going

A ``view`` is the log as it was when a reader first asked with that name: what a query plans and
reads with one view fits together, and costs the broker one opening.

In the stream each batch tells, in its own metadata, how many rows of the log were passed, so that
a reader that lost its connection asks for the rest. The last batch is empty and says ``end`` or
``error``: without it the stream was cut off.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.storage.contract import GenerationInfo
from perdure.storage.cursors import PipelineCursor
from perdure.storage.rocksdb.bulk import FilterSets
from perdure.storage.rocksdb.bulk_slices import Slice

API: Final = "/api/v1"
VERSION_PATH: Final = f"{API}/version"
LOG_PATH: Final = f"{API}/storage/databases/log"

CURSORS_PATH: Final = f"{LOG_PATH}/cursors"
RUNS_PATH: Final = f"{LOG_PATH}/runs"

PRODUCT: Final = "perdure"
API_VERSION: Final = 1

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
POSITION_KEY: Final = b"perdure.position"
END_KEY: Final = b"perdure.end"
ERROR_KEY: Final = b"perdure.error"

ITEMS_MAX: Final = 1_000
"""Most items of a page of generations or streams."""

ROWS_MIN: Final = 1_024
"""Least rows of a slice: the answer to a query must stay small however long the log is."""


class Place(msgspec.Struct, frozen=True):
    """Where a message is."""

    generation: int
    offset: int


class Description(msgspec.Struct, frozen=True):
    """A log.

    Attributes:
        database_id: tells it from every other.
        newest: its last message; None = nothing is recorded.
        generations: oldest first.
    """

    database_id: str
    newest: Place | None
    generations: tuple[GenerationInfo, ...]


class _Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Attributes:
    view: see above.
    filter_sets: a topic must match a filter of each set.
    oldest: generation with which the log began when the reader first saw it. A view may have
        been forgotten since: a range that reaches into what was dropped then is refused.
        0 = take what there is.
    """

    view: str = ""
    filter_sets: FilterSets = ()
    oldest: int = 0


class SliceQuery(_Query, frozen=True, kw_only=True):
    """Cut a range into slices of about ``rows_max`` messages."""

    after_offset: int
    until_offset: int
    rows_max: int


class Slices(msgspec.Struct, frozen=True):
    """The answer to ``SliceQuery``."""

    slices: tuple[Slice, ...]


class BoundQuery(_Query, frozen=True, kw_only=True):
    """The highest offset with at most ``rows_max`` wanted messages up to it."""

    after_offset: int
    until_offset: int
    rows_max: int


class Bound(msgspec.Struct, frozen=True):
    """The answer to ``BoundQuery``."""

    offset: int


class Stream(msgspec.Struct, frozen=True):
    """A stream of a generation, and the structure that it has learned."""

    generation: int
    stream: int
    pattern: str


class Streams(msgspec.Struct, frozen=True):
    """A page of streams.

    Attributes:
        items: by number.
        next_cursor: where the next page begins; None = this is the last.
    """

    items: tuple[Stream, ...]
    next_cursor: str | None = None


class RowQuery(_Query, frozen=True, kw_only=True):
    """The rows of some slices.

    Attributes:
        database_id: that the log must have; empty = any.
        slices: what to read, in this order.
        columns: names, in the order of the batches.
        published_from, published_until: bounds of ``published_at``, or None.
        where: a content filter, or empty.
        position: rows of the log to pass over, as a batch before told.
        compression: of the batches: ``lz4``, ``zstd`` or empty.
    """

    database_id: str = ""
    slices: tuple[Slice, ...]
    columns: tuple[str, ...]
    published_from: int | None = None
    published_until: int | None = None
    where: str = ""
    position: int = 0
    compression: str = ""


class Cursors(msgspec.Struct, frozen=True):
    """How far pipelines have read; ``broken`` has the names of those that cannot be read."""

    items: tuple[PipelineCursor, ...]
    broken: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """An answer that is an error, and the content of ``ERROR_KEY``.

    Attributes:
        code: never changes; that of ``perdure.errors`` where it comes from there.
        message: one sentence.
        details: more, by name; ``hint`` is what to do.
        request_id: stands in the broker's log.
    """

    code: str
    message: str
    details: dict[str, Any] = {}
    request_id: str = ""

    @property
    def hint(self) -> str:
        """What to do, or empty."""
        return str(self.details.get("hint", ""))


def problem_of(code: str, message: str, hint: str = "") -> Problem:
    """A problem with a hint, or without."""
    return Problem(code, message, {"hint": hint} if hint else {})
