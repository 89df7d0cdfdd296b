"""The generations of the log: their headers, counters and layouts.

Values in the default table (keys in ``keys.py``)::

    header      version=1 (1) | MessagePack array: generation, layout, since, until, created,
                thresholds
    counters    version=1 (1) | messages (8)
    point       messages (8) that were recorded when the offset in the key was reached

A point is kept about every 1024 messages, and after 4 MiB of payload: it bounds from above how
many messages follow an offset, and what lies between two is never much to read. A generation that
has neither so many nor so much has no point.

Order on disk: a generation's tables are made before its header is written, and its header is
deleted, with a mark in its place, before its tables are. So a crash in between leaves tables
without a header: they are empty (not begun) or marked (dropped), and removed at the next start.
Tables that are neither are left alone: a start deletes no message.

Invariant: offsets of generations do not overlap; the last generation is the current one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, final

import msgspec

from perdure.errors import FormatTooNew, StorageCorrupt, UsageError
from perdure.storage.codec import decode_record, encode_record
from perdure.storage.contract import GenerationInfo
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import META, Engine, Operations, prefix_end
from perdure.storage.rocksdb.layout import Layout, table_generation, table_names
from perdure.storage.rocksdb.layout_bitmask import LAYOUT as BITMASK
from perdure.storage.rocksdb.layout_bitmask import BitmaskLayout
from perdure.storage.rocksdb.layout_v1 import LAYOUT as SKIP_SCAN
from perdure.storage.rocksdb.layout_v1 import SINGLES_LAYOUT, SkipScanLayout
from perdure.storage.rows import Rows
from perdure.topic.proposal import Structure

_POINT_EVERY: Final = 1024
"""Messages between points."""

_POINT_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes after which there is a point, too, behind the batch that reaches them."""

_COUNTERS: Final = struct.Struct(">BQ")
_COUNT: Final = struct.Struct(">Q")
_VERSION: Final = 1
_ALL_KEYS_END: Final = b"\xff" * 32


class GenerationHeader(msgspec.Struct, frozen=True, array_like=True):
    """What is written once of a generation, and again when it ends.

    Attributes:
        generation: number, from 1.
        layout: version of its layout.
        since_offset: its first possible offset.
        until_offset: the first offset after it; 0 = current.
        created_at_us: wall time.
        thresholds: of its topic structure.
    """

    generation: int
    layout: int
    since_offset: int
    until_offset: int
    created_at_us: int
    thresholds: tuple[int, ...] = ()


def counters_value(message_count: int) -> bytes:
    """The value of a generation's counters."""
    return _COUNTERS.pack(_VERSION, message_count)


_header_decoder = msgspec.msgpack.Decoder(GenerationHeader)


@final
class Generation:
    """One generation, open."""

    __slots__ = ("counts", "header", "layout", "message_count", "offsets", "unmarked_bytes")

    def __init__(self, header: GenerationHeader, layout: Layout) -> None:
        self.header = header
        self.layout = layout
        self.message_count = 0
        # The points, as two lists of one length.
        self.offsets: list[int] = []
        self.counts: list[int] = []
        # Payload since the last point, or since the start.
        self.unmarked_bytes = 0

    def stage_counts(self, operations: Operations, rows: Rows) -> None:
        """Add the counters as they are when these messages are recorded too."""
        number, before = self.header.generation, self.message_count
        after = before + rows.count
        operations += (META, keys.generation_counters(number), counters_value(after))
        for count, offset in self._new_points(rows):
            operations += (META, keys.generation_point(number, offset), _COUNT.pack(count))

    def count(self, rows: Rows) -> None:
        """Take note that messages were recorded; as ``stage_counts`` was told."""
        points = self._new_points(rows)
        for count, offset in points:
            self.offsets.append(offset)
            self.counts.append(count)
        self.message_count += rows.count
        self.unmarked_bytes = 0 if points else self.unmarked_bytes + rows.payload_bytes

    def messages_after(self, offset: int) -> int:
        """How many of its messages follow an offset, at most."""
        point = bisect_right(self.offsets, offset)
        return self.message_count - (self.counts[point - 1] if point else 0)

    def newest(self, count: int) -> int:
        """An offset that about so many of its messages follow.

        At most so many if a point lies behind them; else all that follow the last point, which
        are less than 1024 and, but for those of earlier runs, little more than 4 MiB.
        """
        left = self.message_count - count
        point = min(bisect_left(self.counts, left), len(self.offsets) - 1)
        if left <= 0 or point < 0:
            return self.header.since_offset - 1
        return self.offsets[point]

    def _new_points(self, rows: Rows) -> list[tuple[int, int]]:
        before = self.message_count
        first = before // _POINT_EVERY + 1
        last = (before + rows.count) // _POINT_EVERY
        points = [
            (count, rows.offset_of(count - before - 1))
            for count in range(first * _POINT_EVERY, last * _POINT_EVERY + 1, _POINT_EVERY)
        ]
        if not points and self.unmarked_bytes + rows.payload_bytes >= _POINT_BYTES:
            points = [(before + rows.count, rows.offsets[-1])]
        # A batch that was written late has offsets below the last point: no point for it.
        newest = self.offsets[-1] if self.offsets else -1
        return [point for point in points if point[1] > newest]


@final
class Generations:
    """All generations of a database.

    Args:
        engine: gives the open engine.
        layout: version for new generations.
        thresholds: of the topic structure of the first generation.

    Attributes:
        current: the one that new messages go to.
    """

    def __init__(
        self, engine: Callable[[], Engine], *, layout: int, thresholds: tuple[int, ...]
    ) -> None:
        self._engine = engine
        self._layout = layout
        self._thresholds = thresholds
        self._open: dict[int, Generation] = {}
        self.current: Generation

    # -- opening ---------------------------------------------------------------------------

    def load(self, *, read_only: bool) -> None:
        """Read what is on disk."""
        engine = self._engine()
        self._open = {}
        for _, value in engine.items(META, b"G", b"H"):
            header = decode_record(_header_decoder, "generation", value)
            self._open[header.generation] = self._load_one(header)
        if not self._open:
            raise StorageCorrupt("no generation of the log has a header")
        self.current = self._open[max(self._open)]
        if not read_only:
            self._remove_leftovers()

    def renew(self) -> bool:
        """Read what the writer has added to what was loaded, after the engine has caught up.

        Returns:
            False = generations have come or gone, or ended: all is to be opened anew.
        """
        headers = [
            decode_record(_header_decoder, "generation", value)
            for _, value in self._engine().items(META, b"G", b"H")
        ]
        if headers != [each.header for each in self._open.values()]:
            return False
        last = headers[-1]
        self.current = self._open[last.generation] = self._load_one(last, self.current)
        return True

    def begin(self, operations: Operations, now_us: int) -> None:
        """Make the first generation of a new database; its header is added to operations."""
        header = GenerationHeader(1, self._layout, 1, 0, now_us, self._thresholds)
        self._make_tables(1)
        self.current = self._open[1] = Generation(header, self._new_layout(header, None))
        operations += (META, keys.generation_header(1), encode_record(header))

    def _load_one(self, header: GenerationHeader, before: Generation | None = None) -> Generation:
        engine, number = self._engine(), header.generation
        if not set(table_names(number)) <= engine.tables:
            raise StorageCorrupt(f"the tables of generation {number} are missing")
        if header.layout in (SKIP_SCAN, SINGLES_LAYOUT):
            layout: Layout = SkipScanLayout.load(
                self._engine, number, header.thresholds, layout=header.layout
            )
        elif header.layout == BITMASK:
            layout = BitmaskLayout(self._engine, number)
        else:
            raise FormatTooNew(f"generation {number} has layout {header.layout}")
        generation = Generation(header, layout)
        key = keys.generation_counters(number)
        # Not ``get``: a view that follows a broker may still have an old one in memory.
        for _, counters in engine.items(META, key, key + b"\0"):
            if counters[0] > _VERSION:
                raise FormatTooNew(f"counters of generation {number} have version {counters[0]}")
            generation.message_count = _COUNTERS.unpack(counters)[1]
        prefix = first = keys.generation_points(number)
        if before is not None and before.offsets:
            # Points are only added.
            generation.offsets, generation.counts = before.offsets, before.counts
            first = keys.generation_point(number, before.offsets[-1] + 1)
        for key, value in engine.items(META, first, prefix_end(prefix)):
            generation.offsets.append(int.from_bytes(key[len(prefix) :]))
            generation.counts.append(_COUNT.unpack(value)[0])
        return generation

    def _new_layout(self, header: GenerationHeader, previous: Layout | None) -> Layout:
        if header.layout == BITMASK:
            return BitmaskLayout(self._engine, header.generation)
        if isinstance(previous, SkipScanLayout):
            return previous.successor(header.generation, layout=header.layout)
        return SkipScanLayout.new(
            self._engine, header.generation, header.thresholds, layout=header.layout
        )

    def _make_tables(self, number: int) -> None:
        engine = self._engine()
        for name in table_names(number):
            if name not in engine.tables:
                engine.create_table(name)

    def _remove_leftovers(self) -> None:
        engine = self._engine()
        for name in sorted(engine.tables):
            number = table_generation(name)
            if not number or number in self._open:
                continue
            marked = engine.get(META, keys.generation_dropped(number)) is not None
            if marked or next(engine.keys(name, b"", _ALL_KEYS_END), None) is None:
                engine.drop_table(name)

    # -- use -------------------------------------------------------------------------------

    def get(self, number: int) -> Generation | None:
        """A generation that is there, or None."""
        return self._open.get(number)

    def __iter__(self) -> Iterator[Generation]:
        return iter(self._open.values())

    def between(self, after_offset: int, until_offset: int) -> list[Generation]:
        """The generations that may hold offsets in ``(after_offset, until_offset]``."""
        return [
            generation
            for generation in self._open.values()
            if generation.header.since_offset <= until_offset
            and not 0 < generation.header.until_offset <= after_offset + 1
        ]

    def messages_after(self, offset: int) -> int:
        """How many messages follow an offset, at most."""
        return sum(
            generation.messages_after(offset)
            for generation in self._open.values()
            if not 0 < generation.header.until_offset <= offset + 1
        )

    @property
    def oldest(self) -> Generation:
        """The one that is dropped next."""
        return next(iter(self._open.values()))

    def info(self) -> list[GenerationInfo]:
        """Descriptions of all generations, oldest first."""
        engine = self._engine()
        return [
            GenerationInfo(
                generation=generation.header.generation,
                layout=generation.header.layout,
                since_offset=generation.header.since_offset,
                until_offset=generation.header.until_offset,
                created_at_us=generation.header.created_at_us,
                message_count=generation.message_count,
                bytes=sum(engine.table_bytes(name) for name in generation.layout.tables),
                stream_count=generation.layout.stream_count,
            )
            for generation in self._open.values()
        ]

    def stage_rotation(
        self, operations: Operations, *, since: int, now_us: int, structure: Structure | None = None
    ) -> Generation:
        """Make the next generation's tables and add its header to operations.

        It begins with what the current one has learned, or with a structure that is given.
        """
        old = self.current.header
        number = old.generation + 1
        self._make_tables(number)
        ended = msgspec.structs.replace(old, until_offset=since)
        thresholds = self._thresholds if structure is None else structure.thresholds
        header = GenerationHeader(number, self._layout, since, 0, now_us, thresholds)
        layout = self._new_layout(header, self.current.layout if structure is None else None)
        if structure is not None and isinstance(layout, SkipScanLayout):
            layout.seed(structure.patterns)
        operations += (META, keys.generation_header(old.generation), encode_record(ended))
        operations += (META, keys.generation_header(number), encode_record(header))
        operations += layout.unpersisted()
        return Generation(header, layout)

    def rotated(self, generation: Generation) -> None:
        """Take note that what ``stage_rotation`` gave was written."""
        generation.layout.mark_persisted()
        self.current.layout.ended()
        self.current.header = msgspec.structs.replace(
            self.current.header, until_offset=generation.header.since_offset
        )
        self._open[generation.header.generation] = self.current = generation

    def stage_drop(self, operations: Operations, number: int) -> int:
        """Add to operations what removes a generation's rows from the default table.

        Returns:
            The first offset after the generation.
        """
        if number not in self._open or self._open[number] is self.current:
            raise UsageError(f"generation {number} is unknown or current")
        engine = self._engine()
        for prefix in (keys.generation_points(number), keys.generation_nodes(number)):
            for key in engine.keys(META, prefix, prefix_end(prefix)):
                operations += (META, key, None)
        operations += (META, keys.generation_header(number), None)
        operations += (META, keys.generation_counters(number), None)
        operations += (META, keys.generation_dropped(number), b"\x01")
        return self._open[number].header.until_offset

    def dropped(self, number: int) -> None:
        """Delete the tables of a generation whose rows are gone."""
        generation = self._open.pop(number)
        for name in generation.layout.tables:
            self._engine().drop_table(name)
