"""Reads pages of one topic filter from an archive, behind an offset, in the order of offsets.

Files of an archive are sorted by topic streams or as maintenance was told, and not by offset. So a
*window* is read: the range of offsets that has as many wanted rows as fit into memory, sorted.
Pages are cut from it, and what is left waits for who asks behind the last page. A window ends
early when looking for its end takes long: a filter that hardly anything matches is answered with an
empty page and how far was looked.

What is known of an archive (its state, its files, their footers) is kept until a file is gone or
something behind its end is asked for: what was archived up to an offset does not change.

Invariant: pages that each begin where the last one ended have every row that the archive has of
their range, once, in order; whatever maintenance does meanwhile.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, final

import msgspec
import pyarrow as pa

from perdure.errors import StorageUnavailable
from perdure.pipeline.archive_parts import ArchivePart, by_store, packed, read_archive
from perdure.pipeline.archive_state import ArchiveState
from perdure.pipeline.archived import Archived, state_of, uncovered
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.message_rows import COLUMNS, messages
from perdure.pipeline.past.wire import PageAnswer, PageRequest
from perdure.pipeline.past.wire import packed as packed_message
from perdure.pipeline.row_groups import Footers
from perdure.pipeline.schema import arrow_schema

LOOK_S: Final = 1.0
"""How long the end of a window is looked for; a page comes in about twice that."""

ROWS_MIN: Final = 64
ROWS_MAX: Final = 1 << 17
"""Rows of a window. The first one of a filter is small, so that it comes soon."""

BEHIND_S: Final = 60.0
"""How long an archive is waited for that has not what the log has dropped: the round that had read
it before may still be at work. One that has not moved for so long will never have it."""

ATTEMPTS: Final = 3
"""Of a window whose files go away while it is read."""

_ALL_IN_ONE: Final = 1 << 62


class _Reading(msgspec.Struct):
    """Rows of a filter that are not given yet.

    Attributes:
        rows: by offset, an Arrow table.
        through: all rows up to here are in it or were given.
        given: how many of them were.
        rows_max: of the next window.
    """

    rows: Any
    through: int
    given: int = 0
    rows_max: int = ROWS_MIN


@final
class PastReader:
    """Gives pages of one archive.

    Args:
        lake: that has it.
        database: identity of the log that it must be of.
        window_bytes: of the rows that are held for one filter, about.
        readings_max: filters that rows are held for.
        clock: monotonic seconds; for tests.
    """

    def __init__(
        self,
        lake: Lake,
        database: str,
        *,
        window_bytes: int,
        readings_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._database = database
        self._window_bytes = window_bytes
        self._readings_max = readings_max
        self._clock = clock
        self._footers = Footers()
        self._state: ArchiveState | None = None
        self._archived: Archived | None = None
        self._stands = (-1, 0.0)
        """Where the archive ended when it was found to be behind, and since when it does."""
        self._readings: OrderedDict[tuple[str, int], _Reading] = OrderedDict()

    def page(self, request: PageRequest) -> PageAnswer:
        """The next messages of a filter.

        Raises:
            ConfigError: there is no archive, or it is of another log.
            StorageError: it cannot be read now.
        """
        after, until = request.after_offset, request.until_offset
        reading = self._readings.pop((request.filter, after), None)
        if reading is not None and reading.through > until:
            reading = None
        missing = ""
        if reading is None or reading.given >= reading.rows.num_rows:
            missing, after, until = self._present(request.filter, after, until)
            if after >= until:
                return PageAnswer(request.number, [], after, missing)
            reading = self._window(request.filter, after, until, reading)
        answer = self._cut(request, reading, missing)
        if answer.through_offset < request.until_offset:
            self._readings[request.filter, answer.through_offset] = reading
            if len(self._readings) > self._readings_max:
                self._readings.popitem(last=False)
        return answer

    def forget(self) -> None:
        """Know nothing any more of an archive that could not be read."""
        self._state = self._archived = None

    def redacted(self, text: str) -> str:
        """What went wrong, without the secrets of catalog and store."""
        return self._lake.store.redact(text)

    # -- what there is ---------------------------------------------------------------------

    def _known(self) -> tuple[ArchiveState, Archived]:
        state, archived = self._state, self._archived
        if state is None or archived is None:
            # First the state: files that are listed after it have at least what it says.
            state = state_of(self._lake, self._database)
            archived = Archived(self._lake, state, self._footers)
            self._state, self._archived = state, archived
        return state, archived

    def _present(self, topic_filter: str, after: int, until: int) -> tuple[str, int, int]:
        """The first part of a range that the archive may have, and what it lacks before that.

        Returns:
            What is missing or empty, and the part: nothing is, if it is empty.

        Raises:
            StorageUnavailable: the archive may have it soon.
        """
        state, _ = self._known()
        if state.position.offset <= after:
            self.forget()
            state, _ = self._known()
        missing = ""
        if archived := uncovered(state, ((topic_filter,),)):
            missing = f"only {', '.join(archived)} was archived"
        for gap in state.gaps:
            if gap.until_offset <= after or gap.after_offset >= until:
                continue
            if gap.after_offset > after:
                return missing, after, gap.after_offset
            after = min(gap.until_offset, until)
            missing = (
                f"messages between offsets {gap.after_offset} and {gap.until_offset} were not "
                "archived"
            )
        end = state.position.offset
        if after < end:
            return missing, after, min(end, until)
        if after < until:
            self._wait_for(end)
            # A round that was ended by a crash has brought some of it, perhaps.
            missing = f"the archive ends at offset {end}"
        return missing, after, until

    def _wait_for(self, end: int) -> None:
        """Go on only if the archive stands at its end for good."""
        now = self._clock()
        if self._stands[0] != end:
            self._stands = (end, now)
        if now - self._stands[1] < BEHIND_S:
            raise StorageUnavailable(
                f"the archive ends at offset {end}, and the log begins behind it",
                hint="is pipeline archive running? retention.keep_for has the log wait for it",
            )

    # -- windows ---------------------------------------------------------------------------

    def _window(self, topic_filter: str, after: int, until: int, last: _Reading | None) -> _Reading:
        rows_max = last.rows_max if last is not None else ROWS_MIN
        for attempt in range(1, ATTEMPTS + 1):
            try:
                through, rows = self._read(topic_filter, after, until, rows_max)
            except StorageUnavailable:
                # Files were put together meanwhile: the rows are in others now.
                self.forget()
                if attempt == ATTEMPTS:
                    raise
            else:
                return _Reading(rows, through, rows_max=self._next_rows(rows, rows_max))
        raise AssertionError

    def _next_rows(self, rows: Any, rows_max: int) -> int:
        if rows.nbytes > self._window_bytes:
            return max(rows_max // 2, 1)
        if rows.nbytes < self._window_bytes // 4:
            return min(rows_max * 4, ROWS_MAX)
        return rows_max

    def _read(self, topic_filter: str, after: int, until: int, rows_max: int) -> tuple[int, Any]:
        _, archived = self._known()
        filter_sets = ((topic_filter,),)
        ends_at = self._clock() + LOOK_S
        through = archived.bound(
            after, until, rows_max, filter_sets, has_time=lambda: self._clock() < ends_at
        )
        batches = [
            batch
            for store, files in by_store(archived.files(after, through, filter_sets))
            for pieces in packed(files, _ALL_IN_ONE)
            for batch in read_archive(
                ArchivePart(pieces, after, through, filter_sets, store=store),
                COLUMNS,
                self._footers,
            )
        ]
        return through, pa.Table.from_batches(batches, arrow_schema(COLUMNS)).sort_by("offset")

    def _cut(self, request: PageRequest, reading: _Reading, missing: str) -> PageAnswer:
        """The next page out of a window."""
        found = messages(reading.rows.slice(reading.given, request.rows_max))
        size = 0
        for number, message in enumerate(found):
            size += message.held_bytes()
            if number and size > request.bytes_max:
                del found[number:]
                break
        reading.given += len(found)
        is_all = reading.given >= reading.rows.num_rows
        through = reading.through if is_all else found[-1].offset
        return PageAnswer(request.number, list(map(packed_message, found)), through, missing)
