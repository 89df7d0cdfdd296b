"""Reads the rows of layouts 1 and 4: streams whole or through the index, merged by offset.

Knows keys and tokens; topics and messages are the layout's. The keys are drawn in ``layout_v1``.

A few streams are merged with an iterator each, which costs nothing per page but to open them.
Many streams are read in windows of time through one iterator, because each open iterator pins
memory; a window that turns out too full is cut, and one that is empty is followed by the first
offset that any stream has after it.

A row stands where its key says: at the last of its messages. An index entry stands for a run of
rows and is found at the last of them, so whoever reads up to an offset looks ``RUN_SPAN`` further.
An entry of layout 1 is a run of one.

A read that looks at much in vain ends with a mark: all that fulfils the plan up to its offset has
come. It is behind the rows of that offset, which is the end of a row.

Invariant: rows come by offset, and each that fulfils the plan comes at least once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import Final, TypeAlias, final

from perdure.errors import StorageCorrupt
from perdure.limits import OFFSET_MAX
from perdure.storage.rocksdb.effort import Effort
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.iterators import Seeker
from perdure.storage.rocksdb.layout_v1_keys import (
    DATA_HEAD,
    INDEX_OFFSET_AT,
    INDEXED_LEVELS,
    RUN_SPAN,
    end_of,
    index_prefix,
    overlapping,
    pack_offset,
    run_of,
    tokens_of,
    unpack_data,
    unpack_offset,
)

LEAPS_MAX: Final = 256
"""Filters on one stream that are leapt over the index; each holds its own iterators open. With
more, the stream is read as it lies and each topic is tried."""

MERGED_MAX: Final = 128
"""Streams that are merged with an iterator each."""

WINDOW_ROWS_MAX: Final = 8_192
"""Rows of a window, held in memory and sorted."""

PICKED_CONSTRAINTS_MAX: Final = 1_024
"""Constraints on one stream whose rows are all looked up in the index before one is read."""

_GET_ROWS_MIN: Final = 16
_GET_ROWS_MAX: Final = 256
"""Rows that are got at once: few at first, since a reader may stop early."""

_WINDOW_US: Final = 1_000_000
_WINDOW_STEP: Final = 8

Row: TypeAlias = tuple[int, bytes, bytes]
"""Offset, data key, data value."""

MARK: Final = b"\xff" * DATA_HEAD
"""In the place of a data key, and higher than any: the read ends here."""

Constraints: TypeAlias = tuple[tuple[int, str], ...]
"""(varying level, token that it must have), ascending."""

Plan: TypeAlias = dict[int, set[Constraints] | None]
"""Streams, each with the constraints of which a topic must fulfil one; None = all of it."""


def _is_indexed(constraints: Constraints) -> bool:
    """Whether the index knows one of the levels."""
    return constraints[0][0] < INDEXED_LEVELS


@final
class Scanner:
    """Reads one generation's rows.

    Args:
        engine: gives the open engine.
        data, index: names of its tables.
        leaps_max, merged_max: see the constants.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        data: str,
        index: str,
        *,
        leaps_max: int = LEAPS_MAX,
        merged_max: int = MERGED_MAX,
    ) -> None:
        self._engine = engine
        self._data = data
        self._index = index
        self._leaps_max = leaps_max
        self._merged_max = merged_max

    def rows(
        self, plan: Plan, after: int, until: int, effort: Effort | None = None
    ) -> Iterator[Row]:
        """Rows of a plan, by offset; one that fulfils it twice may come twice in a row.

        Args:
            plan: the streams and what is wanted of them.
            after, until: exclusive and inclusive bounds.
            effort: where it is spent a mark comes, and who reads must not go on; None = never.
        """
        if len(plan) > self._merged_max:
            return self._windows(plan, after, until, effort)
        parts = [
            self.stream_rows(stream, constraints, after, until, effort)
            for stream, constraints in plan.items()
        ]
        return parts[0] if len(parts) == 1 else merge(*parts)

    def stream_rows(
        self,
        stream: int,
        constraints: set[Constraints] | None,
        after: int,
        until: int,
        effort: Effort | None = None,
    ) -> Iterator[Row]:
        """Rows of one stream, by offset; ``effort`` as in ``rows``."""
        if constraints is None:
            return self._whole(stream, after, until)
        if len(constraints) > self._leaps_max or not all(map(_is_indexed, constraints)):
            return self._tried(stream, constraints, after, until, effort)
        parts = [self._leap(stream, each, after, until, effort) for each in sorted(constraints)]
        return parts[0] if len(parts) == 1 else merge(*parts)

    # -- rows of which the keys are known before they are read -------------------------------

    def entries(
        self, stream: int, constraints: Constraints, after: int, until: int, limit: int
    ) -> list[int]:
        """The first offsets, at most ``limit``, at which the first level has the wanted hash; where
        the index does not know that level, the first ones of the stream."""
        head = pack_offset(stream)
        if not _is_indexed(constraints):
            first, end = head + pack_offset(after + 1), end_of(head, until)
            keys = islice(self._engine().keys(self._data, first, end), limit)
            return [unpack_data(key)[1] for key in keys]
        prefix = index_prefix(head, *constraints[0])
        return list(islice(self._of_token(prefix, after, until), limit))

    def picked(
        self, stream: int, constraints: set[Constraints], after: int, until: int, limit: int
    ) -> list[bytes] | None:
        """Data keys by offset, for constraints on all levels that vary; None = they are more
        than ``limit``.

        For a key there may be no row, because tokens can have the same hash.
        """
        head = pack_offset(stream)
        found: list[bytes] = []
        seeker = self._engine().seeker(self._index, end_of(head, OFFSET_MAX))
        for each in constraints:
            varying = "/".join([token for _, token in each]).encode()
            if len(each) > 1:
                offsets = self._offsets(head, each, after, until)
            else:
                # One iterator for all of them: each would cost as much as ten rows.
                offsets = offsets_of(seeker, index_prefix(head, *each[0]), after, until)
            found += [head + pack_offset(offset) + varying for offset in offsets]
            if len(found) > limit:
                return None
        found.sort()
        return found

    def picked_rows(self, row_keys: list[bytes]) -> Iterator[list[bytes]]:
        """Keys and values of data keys, which all are of one stream, in turn, some at a time."""
        for first in range(0, len(row_keys), _GET_ROWS_MAX):
            part = row_keys[first : first + _GET_ROWS_MAX]
            found: list[bytes] = []
            for key, value in zip(part, self._engine().get_many(self._data, part), strict=True):
                if value is None:
                    stream, offset = unpack_data(key)
                    end = end_of(pack_offset(stream), offset)
                    self._row_at(self._engine().seeker(self._data, end), stream, offset)
                    continue
                found.append(key)
                found.append(value)
            yield found

    # -- many streams ----------------------------------------------------------------------

    def _windows(self, plan: Plan, after: int, until: int, effort: Effort | None) -> Iterator[Row]:
        span = _WINDOW_US
        while after < until:
            high = min(after + span, until)
            rows, following = self._window(plan, after, high, until, effort)
            if len(rows) > WINDOW_ROWS_MAX and span > 1:
                span = max(span // _WINDOW_STEP, 1)
                continue
            rows.sort()
            yield from rows
            if following is None:
                return
            if len(rows) < WINDOW_ROWS_MAX // _WINDOW_STEP:
                span *= _WINDOW_STEP
            after = max(high, following - 1)

    def _window(
        self, plan: Plan, after: int, high: int, until: int, effort: Effort | None
    ) -> tuple[list[Row], int | None]:
        """Rows in ``(after, high]``, and the first offset after them in ``(high, until]``.

        Gives up, with more rows than a window may have, when it is too full.
        """
        rows: list[Row] = []
        following: int | None = None
        data = self._engine().seeker(self._data, pack_offset(2**64 - 1))
        for stream, constraints in plan.items():
            head = pack_offset(stream)
            if constraints is not None:
                found = self.stream_rows(stream, constraints, after, until, effort)
                row = next(found, None)
                while row is not None and row[0] <= high:
                    rows.append(row)
                    row = next(found, None)
                at = until + 1 if row is None else row[0]
            else:
                at = until + 1
                key = data.seek(head + pack_offset(after + 1))
                while key is not None and key.startswith(head):
                    at = unpack_data(key)[1]
                    if at > high:
                        break
                    rows.append((at, key, data.value()))
                    at = until + 1
                    key = data.next()
            if at <= until and (following is None or at < following):
                following = at
            if len(rows) > WINDOW_ROWS_MAX and high > after + 1:
                return rows, following
        return rows, following

    # -- one stream ------------------------------------------------------------------------

    def _whole(self, stream: int, after: int, until: int) -> Iterator[Row]:
        """All rows of a stream."""
        head = pack_offset(stream)
        first, end = head + pack_offset(after + 1), end_of(head, until)
        for key, value in self._engine().items(self._data, first, end):
            yield unpack_data(key)[1], key, value

    def _tried(
        self,
        stream: int,
        constraints: set[Constraints],
        after: int,
        until: int,
        effort: Effort | None,
    ) -> Iterator[Row]:
        """Rows of a stream that fulfil one of many constraints."""
        by_levels: dict[tuple[int, ...], set[tuple[str, ...]]] = {}
        for each in constraints:
            levels = tuple([level for level, _ in each])
            by_levels.setdefault(levels, set()).add(tuple([token for _, token in each]))
        for tried, row in enumerate(self._whole(stream, after, until)):
            if effort is not None and effort.is_spent(tried):
                yield after, MARK, b""
                return
            after = row[0]
            tokens = tokens_of(row[1])
            for levels, wanted in by_levels.items():
                if tuple([tokens[level] for level in levels]) in wanted:
                    yield row
                    break

    def _leap(
        self, stream: int, constraints: Constraints, after: int, until: int, effort: Effort | None
    ) -> Iterator[Row]:
        """Rows of a stream whose tokens are these, found through the index."""
        head = pack_offset(stream)
        data = self._engine().seeker(self._data, end_of(head, until))
        offsets = self._offsets(head, constraints, after, until, effort)
        for tried, offset in enumerate(offsets):
            if offset < 0:
                yield ~offset, MARK, b""
                return
            if effort is not None and effort.is_spent(tried):
                yield after, MARK, b""
                return
            after = offset
            key = self._row_at(data, stream, offset)
            tokens = tokens_of(key)
            if len(tokens) == len(constraints):
                # All that varies is given, so the other keys are known without a seek.
                yield from self._known(iter((offset,)), head, constraints, data)
                yield from self._known(offsets, head, constraints, data)
                return
            if all(tokens[level] == token for level, token in constraints):
                yield offset, key, data.value()

    def _row_at(self, data: Seeker, stream: int, offset: int) -> bytes:
        """The data key that an index entry stands for."""
        key = data.seek(pack_offset(stream) + pack_offset(offset))
        if key is None or unpack_data(key)[1] != offset:
            raise StorageCorrupt(
                f"stream {stream} in {self._index} has an entry for {offset} and no message"
            )
        return key

    def _known(
        self, offsets: Iterator[int], head: bytes, constraints: Constraints, data: Seeker
    ) -> Iterator[Row]:
        """Rows at offsets whose tokens are all known, many at a time: a half of a seek's cost."""
        varying = "/".join([token for _, token in constraints]).encode()
        stream: int = unpack_offset(head)[0]
        rows_max = _GET_ROWS_MIN
        mark = 0
        while not mark:
            part = list(islice(offsets, rows_max))
            if not part:
                return
            if part[-1] < 0:
                mark = part.pop()
            row_keys = [head + pack_offset(offset) + varying for offset in part]
            values = self._engine().get_many(self._data, row_keys)
            for offset, key, value in zip(part, row_keys, values, strict=True):
                if value is None:
                    # Another token with the same hash, or a message is missing.
                    self._row_at(data, stream, offset)
                    continue
                yield offset, key, value
            rows_max = min(rows_max * 4, _GET_ROWS_MAX)
        yield ~mark, MARK, b""

    def _offsets(
        self,
        head: bytes,
        constraints: Constraints,
        after: int,
        until: int,
        effort: Effort | None = None,
    ) -> Iterator[int]:
        """Offsets at which all levels that the index knows have the wanted hashes; the last one is
        a mark's and inverted (``~``) where the effort is spent."""
        prefixes = [
            index_prefix(head, level, token)
            for level, token in constraints
            if level < INDEXED_LEVELS
        ]
        if len(prefixes) == 1:
            return self._of_token(prefixes[0], after, until)
        return self._of_tokens(prefixes, after, until, effort)

    def _of_token(self, prefix: bytes, after: int, until: int) -> Iterator[int]:
        """The offsets of a token in ``(after, until]``."""
        seeker = self._engine().seeker(self._index, end_of(prefix, until + RUN_SPAN))
        return offsets_of(seeker, prefix, after, until)

    def _of_tokens(
        self, prefixes: list[bytes], after: int, until: int, effort: Effort | None
    ) -> Iterator[int]:
        """``_offsets`` of several tokens."""
        seekers = [
            self._engine().seeker(self._index, end_of(prefix, until + RUN_SPAN))
            for prefix in prefixes
        ]
        # What each seeker stands on: a leap within it is no seek.
        runs: list[tuple[int, ...]] = [(-1,) for _ in prefixes]
        offset, agreed, turn = after + 1, 0, 0
        passed, tried = after, 0
        while True:
            # Without a row that was passed nothing would have been gained.
            if effort is not None and effort.is_spent(tried if passed > after else 0):
                yield ~passed
                return
            tried += 1
            run = runs[turn]
            before = run[-1]
            if before < offset:
                seeker = seekers[turn]
                found = seeker.seek(prefixes[turn] + pack_offset(offset))
                if found is None:
                    return
                run = runs[turn] = run_of(found, seeker.value())
                if run[0] <= before:
                    raise overlapping(found)
            at = run[bisect_left(run, offset)]
            if at > until:
                return
            if at == offset:
                agreed += 1
            else:
                if agreed:
                    passed = offset
                agreed = 1
            offset = at
            if agreed == len(seekers):
                yield offset
                passed = offset
                offset, agreed = offset + 1, 0
            turn = (turn + 1) % len(seekers)


def offsets_of(seeker: Seeker, prefix: bytes, after: int, until: int) -> Iterator[int]:
    """The offsets in ``(after, until]`` of a token's index entries.

    Args:
        seeker: over the index, up to ``RUN_SPAN`` behind ``until`` at least.
        prefix: of the entries.
        after, until: offsets.
    """
    end = end_of(prefix, until + RUN_SPAN)
    before = -1
    key = seeker.seek(prefix + pack_offset(after + 1))
    while key is not None and key < end:
        value = seeker.value()
        if value:
            run = run_of(key, value)
            if run[0] <= before:
                raise overlapping(key)
            for offset in run:
                if offset > until:
                    return
                if offset > after:
                    yield offset
            before = run[-1]
        else:
            before = unpack_offset(key, INDEX_OFFSET_AT)[0]
            if before > until:
                return
            yield before
        key = seeker.next()
