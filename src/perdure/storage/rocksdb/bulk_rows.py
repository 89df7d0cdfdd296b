"""The rows of one stream of a generation, for ``bulk``: all of them, or those picked by topic.

RocksDB gives them, or whoever reads table files as they lie (``blocks``) where there are many.

Invariant: rows come in offset order, each once, the same whoever gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from perdure.storage import bundle
from perdure.storage.bundle import reach
from perdure.storage.rocksdb.blocks import KEYS_FOR_BLOCKS, ROWS_BEFORE_BLOCKS, BlockReader
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.iterators import CHUNK_ROWS_MAX
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.layout_v1_keys import end_of, pack_offset, unpack_data
from perdure.storage.rocksdb.layout_v1_scan import Constraints
from perdure.storage.rocksdb.page import Page
from perdure.storage.rocksdb.single_rows import of_range

PICKED_MAX: Final = 131_072
"""Keys of a slice and a stream that are looked up in the index before the first row is read. If
there are more, or more constraints than can be looked up, rows are read as they are found."""


@final
class StreamRows:
    """Reads the streams of a generation.

    Args:
        engine: open.
        layout: of the generation.
        blocks: who reads table files as they lie; None = RocksDB reads all.
    """

    def __init__(self, engine: Engine, layout: SkipScanLayout, blocks: BlockReader | None) -> None:
        self._engine = engine
        self._layout = layout
        self._blocks = blocks
        self._table = layout.tables[0]

    def rows(
        self, stream: int, constraints: set[Constraints] | None, after: int, until: int
    ) -> Iterator[list[bytes] | Page]:
        """Rows of a stream with offsets in ``(after, until]``, of one message each: keys and
        values in turn, some at a time; or as pages.

        Args:
            stream, after, until: what is read.
            constraints: of which each row fulfils one; None = all rows.
        """
        if constraints is None:
            yield from self._whole_rows(stream, after, until)
            return
        for rows in self._picked(stream, constraints, after, until):
            yield rows if isinstance(rows, Page) else of_range(rows, after, until)

    def _whole_rows(self, stream: int, after: int, until: int) -> Iterator[list[bytes] | Page]:
        """All rows of a stream: the first ones row by row, because most streams are short."""
        head, last, count = pack_offset(stream), after, 0
        tries = self._reads_blocks()
        while True:
            first, end = head + pack_offset(last + 1), end_of(head, reach(until))
            for rows in self._engine.chunks(self._table, first, end):
                last = unpack_data(rows[-2])[1]
                count += len(rows) // 2
                yield of_range(rows, after, until)
                if tries and count >= ROWS_BEFORE_BLOCKS:
                    break
            else:
                return
            tries = False
            assert self._blocks is not None
            pages = self._blocks.pages(self._table, stream, last, reach(until), until)
            for page, last, newest in pages:
                yield _as_singles(page, last, newest, after, until)

    def _picked(
        self,
        stream: int,
        constraints: set[Constraints],
        after: int,
        until: int,
    ) -> Iterator[list[bytes] | Page]:
        """Rows of a stream that fulfil constraints, as they lie; or as pages."""
        layout, scanner = self._layout, self._layout.scanner
        if layout.is_picked(stream, constraints):
            found = scanner.picked(stream, constraints, after, reach(until), PICKED_MAX)
            if found is not None:
                given = 0
                if len(found) >= KEYS_FOR_BLOCKS and self._reads_blocks():
                    assert self._blocks is not None
                    for page, last, newest in self._blocks.picked(self._table, stream, found):
                        given += len(page)
                        yield _as_singles(page, last, newest, after, until)
                yield from scanner.picked_rows(found[given:])
                return
        rows: list[bytes] = []
        last = -1
        for offset, key, value in scanner.stream_rows(stream, constraints, after, reach(until)):
            if offset == last:
                continue
            last = offset
            rows.append(key)
            rows.append(value)
            if len(rows) >= 2 * CHUNK_ROWS_MAX:
                yield rows
                rows = []
        yield rows

    def _reads_blocks(self) -> bool:
        """Whether rows may be read from table files as they lie."""
        return self._blocks is not None and not self._engine.deletes_in_memory(self._table)


def _as_singles(page: Page, last: int, newest: bytes, after: int, until: int) -> list[bytes] | Page:
    """A stretch as rows of one message each, up to an offset."""
    if last > until or bundle.is_bundle_or_later(newest):
        return of_range([each for row in page.rows() for each in row], after, until)
    return page
