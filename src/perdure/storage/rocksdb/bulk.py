"""Reads many rows of the log at once, for readers that are no broker: pages of raw rows.

Knows generations, streams and offsets; what is in a row is decoded by the caller. It opens the
directory read-only, beside the broker that writes it, takes no lock and writes nothing. What it
sees is what was there when it was opened.

A reader names the topics it wants as **filter sets**: a topic must match one filter of each set;
no set at all means every topic, those that begin with ``$`` too.

Invariant: each recorded message of a slice that is wanted comes once; those of a stream come in
offset order. Broken into slices at any offsets, a range gives the same messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, final

from perdure.config.schema import RocksdbConfig
from perdure.errors import FormatTooNew, StorageError, StorageUnavailable
from perdure.limits import OFFSET_MAX
from perdure.storage.bundle import count_of, reach
from perdure.storage.contract import GenerationInfo
from perdure.storage.notes import LOG_IDENTITY
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.blocks import BlockReader, LiveFile, Opener
from perdure.storage.rocksdb.bulk_rows import StreamRows
from perdure.storage.rocksdb.bulk_slices import Slice, cut, share_of
from perdure.storage.rocksdb.engine import META, Engine
from perdure.storage.rocksdb.generations import Generation
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.layout_v1_keys import pack_offset, unpack_data
from perdure.storage.rocksdb.layout_v1_scan import Constraints, Plan
from perdure.storage.rocksdb.page import Page, PageBuilder
from perdure.storage.rocksdb.store import RocksDatabase

FilterSets: TypeAlias = tuple[tuple[str, ...], ...]

PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of values after which a page ends; with a largest message it is far below 2 GiB, where
the offsets of an Arrow array end."""

_JOINED_SHARE: Final = 4
"""A page with less than this part of the rows wanted is joined with others."""


class Position(NamedTuple):
    """A recorded message: where it is."""

    generation: int
    offset: int


@final
class LogFiles:
    """The log in a directory, as it is now.

    Args:
        path: a broker's data directory.
        follows: ``renew`` shows what was added since.
        mapped: see ``Engine``; for a process that reads rows and nothing else.
        blocks: who reads long stretches of a stream from table files as they lie; None = RocksDB
            reads all.

    Attributes:
        follows: as given.

    Raises:
        StorageUnavailable: the directory holds no database.
        FormatTooNew, StorageCorrupt: it cannot be read.
    """

    def __init__(
        self,
        path: Path,
        *,
        follows: bool = False,
        mapped: bool = False,
        blocks: Opener | None = None,
    ) -> None:
        self._path = path
        self.follows = follows
        config = RocksdbConfig(tail_messages=0)
        self._database = RocksDatabase.open(
            path,
            config=config,
            read_only=True,
            engine=partial(Engine, follows=follows, mapped=mapped),
        )
        self._engine, self._generations = self._database.tables()
        self._opens_blocks = blocks
        self._blocks: BlockReader | None = None
        self._live: list[LiveFile] = []
        self._find_files()

    def renew(self) -> bool:
        """Show the log as it is now, for a fraction of what opening it costs; ``following`` says
        when that is as good.

        Returns:
            False = open it anew: a generation was begun or dropped, or the view cannot follow.
        """
        try:
            self._engine.catch_up()
            self._find_files()
            return self._generations.renew()
        except StorageError:
            return False

    def _find_files(self) -> None:
        """Let what reads table files know which there are."""
        if self._opens_blocks is None:
            return
        live = self._engine.live_files()
        if self._blocks is None or live != self._live:
            self._blocks, self._live = self._opens_blocks(self._path, live), live

    @property
    def sequence(self) -> int:
        """The number of the last write that is seen; a view with a higher one sees all of it."""
        return self._engine.sequence()

    def close(self) -> None:
        """Let go of the files."""
        self._blocks = None
        del self._engine, self._generations
        self._database.close()

    @property
    def database(self) -> RocksDatabase:
        """Sessions and all the rest, as they were at the same moment."""
        return self._database

    @property
    def database_id(self) -> str:
        """What tells this log from every other: of a cluster's nodes each has the same."""
        noted = self._engine.get(META, keys.NOTE + LOG_IDENTITY)
        return noted.decode() if noted else self._database.format.database_id

    def generations(self) -> list[GenerationInfo]:
        """The generations, oldest first."""
        return self._database.generations()

    def newest(self) -> Position | None:
        """The last message that can be seen; None = nothing is recorded.

        Messages become visible in offset order, so no message will ever appear before it. The
        high mark of the database would not do: it covers offsets that are still to be written.
        """
        for generation in sorted(self._generations, key=_number, reverse=True):
            layout = self._layout(generation)
            table = layout.tables[0]
            last = -1
            for stream, _ in layout.streams():
                key = self._engine.last_key(table, pack_offset(stream), pack_offset(stream + 1))
                if key is not None:
                    last = max(last, unpack_data(key)[1])
            if last >= 0:
                return Position(generation.header.generation, last)
        return None

    def layout(self, generation: int) -> SkipScanLayout:
        """The layout of a generation, which knows its topics.

        Raises:
            StorageUnavailable: the generation is not there any more.
            FormatTooNew: it has a layout that is not read in bulk.
        """
        found = self._generations.get(generation)
        if found is None:
            raise StorageUnavailable(
                f"generation {generation} of {self._path} was dropped while it was to be read",
                hint="its messages had reached the end of storage retention",
            )
        return self._layout(found)

    def patterns(self, generation: int) -> list[str]:
        """The structures that a generation has learned.

        Raises:
            StorageUnavailable, FormatTooNew: see ``layout``.
        """
        return [pattern for _, pattern in self.layout(generation).streams()]

    def slices(
        self,
        filter_sets: FilterSets,
        after_offset: int,
        until_offset: int,
        *,
        rows_max: int,
        shares: bool = False,
    ) -> list[Slice]:
        """Cut a range into slices that cost about as much as reading ``rows_max`` messages, or
        less; those that cannot hold a wanted message are left out.

        Args:
            filter_sets, after_offset, until_offset, rows_max: as above.
            shares: neighbours may have the same range and each a share of what is wanted there,
                which is cheaper; for who needs no ranges that follow each other.
        """
        found: list[Slice] = []
        for generation in self._generations.between(after_offset, until_offset):
            plan = self.plan(generation.header.generation, filter_sets)
            if plan:
                layout = self._layout(generation)
                found += cut(
                    generation,
                    layout,
                    plan,
                    after_offset,
                    until_offset,
                    rows_max=rows_max,
                    shares=shares,
                )
        return found

    def plan(self, generation: int, filter_sets: FilterSets) -> Plan:
        """The streams that hold what is wanted, each with what its tokens must be."""
        layout = self.layout(generation)
        plan: Plan = {stream: None for stream, _ in layout.streams()}
        for filters in filter_sets:
            plan = intersection(plan, layout.plan(filters))
        return plan

    def pages(
        self,
        filter_sets: FilterSets,
        part: Slice,
        *,
        rows_max: int,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Iterator[Page]:
        """The rows of a slice, stream by stream, always in the same order.

        Pages have ``rows_max`` rows and up to twice that, and not much over ``bytes_max``.
        """
        layout = self.layout(part.generation)
        page = PageBuilder()
        reader = StreamRows(self._engine, layout, self._blocks)
        plan = share_of(self.plan(part.generation, filter_sets), part)
        until = min(part.until_offset, OFFSET_MAX)
        for stream, constraints in plan.items():
            for rows in reader.rows(stream, constraints, part.after_offset, until):
                if isinstance(rows, list):
                    page.add(rows)
                elif len(rows) < rows_max // _JOINED_SHARE:
                    page.join(rows)
                else:
                    if page.rows:
                        yield page.take()
                    yield rows
                    continue
                if page.size > bytes_max:
                    yield from page.take().cut(bytes_max)
                elif page.rows >= rows_max:
                    yield page.take()
        if page.rows:
            yield page.take()

    def bound(self, filter_sets: FilterSets, after: int, until: int, rows_max: int) -> int:
        """The highest offset up to ``until`` with at most ``rows_max`` wanted messages after
        ``after``. At least one message is let through if there is one."""
        rough = self._rough_bound(after, until, rows_max)
        if rough > after:
            return rough
        left = max(rows_max, 1)
        for generation in self._generations.between(after, until):
            number = generation.header.generation
            layout = self._layout(generation)
            last = -1
            plan = self.plan(number, filter_sets)
            for offset, _, value in layout.scanner.rows(plan, after, reach(until)):
                if offset == last:
                    continue
                last = offset
                count = count_of(value, offset, after, until)
                if count > left:
                    # Those of a row are consecutive.
                    return min(offset, until) - count + left
                left -= count
        return until

    def _rough_bound(self, after: int, until: int, rows_max: int) -> int:
        """The farthest sparse count that is surely within ``rows_max``, whatever is wanted."""
        best, passed = after, 0
        for generation in self._generations.between(after, until):
            base = bisect_right(generation.offsets, after)
            start = generation.counts[base - 1] if base else 0
            for offset, count in zip(
                generation.offsets[base:], generation.counts[base:], strict=True
            ):
                if offset > until or passed + count - start > rows_max:
                    return best
                best = offset
            passed += generation.message_count - start
            if passed > rows_max:
                return best
        return until

    def _layout(self, generation: Generation) -> SkipScanLayout:
        if not isinstance(generation.layout, SkipScanLayout):
            raise FormatTooNew(
                f"generation {generation.header.generation} of {self._path} has layout "
                f"{generation.header.layout}, which is not read in bulk",
                hint="storage.rocksdb.layout: skipscan is",
            )
        return generation.layout


def intersection(one: Plan, other: Plan) -> Plan:
    """What both plans read."""
    found: Plan = {}
    for stream, constraints in one.items():
        if stream not in other:
            continue
        others = other[stream]
        if constraints is None or others is None:
            found[stream] = others if constraints is None else constraints
            continue
        both = {merged for a in constraints for b in others if (merged := _merge(a, b)) is not None}
        if both:
            found[stream] = both
    return found


def _merge(one: Constraints, other: Constraints) -> Constraints | None:
    """Both constraints as one; None = no topic fulfils both."""
    tokens = dict(one)
    for level, token in other:
        if tokens.setdefault(level, token) != token:
            return None
    return tuple(sorted(tokens.items()))


def _number(generation: Generation) -> int:
    return generation.header.generation
