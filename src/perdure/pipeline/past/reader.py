"""Reads pages of one topic filter from an archive, behind an offset, in the order of offsets.

Files of an archive are sorted by topic streams or as maintenance was told, and not by offset. So a
*window* is read: the range of offsets that has as many wanted rows as fit into memory, sorted.
Pages are cut from it for whoever asks for that filter within it: clients that ask for the same
share windows, wherever they began. It is let go for want of room, those first that as many have
left at the end as have come in at the begin; of these hardly any are kept, for whoever comes just
behind. A window ends early when looking for its end takes long: a filter that hardly anything
matches is answered with an empty page and how far was looked.

What is known of an archive (its state, its files, their footers) is kept until a file is gone or
something behind its end is asked for: what was archived up to an offset does not change.

Invariant: pages that each begin where the last one ended have every row that the archive has of
their range, once, in order; whatever maintenance does meanwhile.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, final

import msgspec
import numpy as np
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

WINDOWS_MAX: Final = 4_096
"""Windows that are held, and of which it is known how large the next one may be."""

ATTEMPTS: Final = 3
"""Of a window whose files go away while it is read."""

_ALL_IN_ONE: Final = 1 << 62


class _Window(msgspec.Struct, eq=False):
    """Rows of a filter and of a range of offsets.

    Attributes:
        after, through: the range.
        rows: by offset, an Arrow table.
        offsets: theirs.
        left_out: what was not archived of the filter; empty = nothing.
        begun, ended: pages at its begin and at its end.
    """

    after: int
    through: int
    rows: Any
    offsets: Any
    left_out: str
    begun: int = 0
    ended: int = 0


@final
class PastReader:
    """Gives pages of one archive.

    Args:
        lake: that has it.
        database: identity of the log that it must be of.
        window_bytes: of the rows that are held for one filter, about.
        held_bytes_max: of all that are held, about: of many filters each has its part.
        clock: monotonic seconds; for tests.
    """

    def __init__(
        self,
        lake: Lake,
        database: str,
        *,
        window_bytes: int,
        held_bytes_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake = lake
        self._database = database
        self._window_bytes = window_bytes
        self._held_bytes_max = held_bytes_max
        self._held_bytes = 0
        self._windows: OrderedDict[tuple[str, int], _Window] = OrderedDict()
        """By filter and begin, those that were used last at the end."""
        self._left: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Those that nobody is known to be in, by when the last one has left."""
        self._left_bytes = 0
        self._begins: dict[str, list[int]] = {}
        """Of the windows of each filter, ascending."""
        self._next_rows: OrderedDict[tuple[str, int], int] = OrderedDict()
        """Rows of the window that follows one, by filter and the end of that."""
        self._clock = clock
        self._footers = Footers()
        self._state: ArchiveState | None = None
        self._archived: Archived | None = None
        self._stands = (-1, 0.0)
        """Where the archive ended when it was found to be behind, and since when it does."""

    def page(self, request: PageRequest) -> PageAnswer:
        """The next messages of a filter.

        Raises:
            ConfigError: there is no archive, or it is of another log.
            StorageError: it cannot be read now.
        """
        after, until = request.after_offset, request.until_offset
        missing = ""
        window = self._held(request.filter, after, until)
        if window is None:
            missing, after, until = self._present(request.filter, after, until)
            if after >= until:
                return PageAnswer(request.number, [], after, missing)
            window = self._held(request.filter, after, until)
            if window is None:
                window = self._window(request.filter, after, until)
                self._hold(request.filter, window)
        window.begun += after == window.after
        answer = self._cut(request, window, after, missing or window.left_out)
        window.ended += answer.through_offset == window.through
        self._note_left((request.filter, window.after), window)
        return answer

    def forget(self) -> None:
        """Know nothing any more of an archive that could not be read."""
        self._state = self._archived = None

    def redacted(self, text: str) -> str:
        """What went wrong, without the secrets of catalog and store."""
        return self._lake.store.redact(text)

    # -- what is held ----------------------------------------------------------------------

    def _held(self, topic_filter: str, after: int, until: int) -> _Window | None:
        """The window that has what follows an offset."""
        begins = self._begins.get(topic_filter, [])
        place = bisect_right(begins, after)
        if not place:
            return None
        key = (topic_filter, begins[place - 1])
        window = self._windows[key]
        if not after < window.through <= until:
            return None
        self._windows.move_to_end(key)
        return window

    def _hold(self, topic_filter: str, window: _Window) -> None:
        key = (topic_filter, window.after)
        self._let_go(key)
        self._windows[key] = window
        insort(self._begins.setdefault(topic_filter, []), window.after)
        self._held_bytes += window.rows.nbytes
        while len(self._windows) > 1 and (
            self._held_bytes > self._held_bytes_max or len(self._windows) > WINDOWS_MAX
        ):
            self._let_go(next(iter(self._left or self._windows)))

    def _note_left(self, key: tuple[str, int], window: _Window) -> None:
        """Somebody has had a page of a window, perhaps the last one."""
        if key in self._left:
            del self._left[key]
            self._left_bytes -= window.rows.nbytes
        if window.ended < window.begun:
            return
        self._left[key] = None
        self._left_bytes += window.rows.nbytes
        while self._left_bytes > self._window_bytes:
            self._let_go(next(iter(self._left)))

    def _let_go(self, key: tuple[str, int]) -> None:
        window = self._windows.pop(key, None)
        if window is None:
            return
        topic_filter, after = key
        self._held_bytes -= window.rows.nbytes
        if key in self._left:
            del self._left[key]
            self._left_bytes -= window.rows.nbytes
        begins = self._begins[topic_filter]
        begins.remove(after)
        if not begins:
            del self._begins[topic_filter]

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
        missing = _left_out(state, topic_filter)
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

    def _window(self, topic_filter: str, after: int, until: int) -> _Window:
        rows_max = self._next_rows.get((topic_filter, after), ROWS_MIN)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                through, rows = self._read(topic_filter, after, until, rows_max)
            except StorageUnavailable:
                # Files were put together meanwhile: the rows are in others now.
                self.forget()
                if attempt == ATTEMPTS:
                    raise
            else:
                break
        self._next_rows[topic_filter, through] = self._following(rows.nbytes, rows_max)
        if len(self._next_rows) > WINDOWS_MAX:
            self._next_rows.popitem(last=False)
        state, _ = self._known()
        offsets = rows.column("offset").to_numpy()
        return _Window(after, through, rows, offsets, _left_out(state, topic_filter))

    def _following(self, size: int, rows_max: int) -> int:
        """Rows of the window behind one of a size."""
        # Windows that pushed each other out would be read for one page each: all that are held,
        # with this one, take half of what may be held, and may grow as payloads do.
        bytes_max = min(self._window_bytes, self._held_bytes_max // (len(self._windows) + 1) // 2)
        if size > bytes_max:
            return max(rows_max // 2, 1)
        if size < bytes_max // 4:
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

    def _cut(self, request: PageRequest, window: _Window, after: int, missing: str) -> PageAnswer:
        """The next page out of a window."""
        first = int(np.searchsorted(window.offsets, after, side="right"))
        found = messages(window.rows.slice(first, request.rows_max))
        size = 0
        for number, message in enumerate(found):
            size += message.held_bytes()
            if number and size > request.bytes_max:
                del found[number:]
                break
        is_all = first + len(found) >= len(window.offsets)
        through = window.through if is_all else found[-1].offset
        return PageAnswer(request.number, list(map(packed_message, found)), through, missing)


def _left_out(state: ArchiveState, topic_filter: str) -> str:
    """What of a filter was never archived, in words; empty = nothing."""
    archived = uncovered(state, ((topic_filter,),))
    return f"only {', '.join(archived)} was archived" if archived else ""
