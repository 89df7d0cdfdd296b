"""Gives the messages of an archive and of the log behind it again, in the order of their offsets.

A replay goes on in rounds. Each looks anew at where the log begins and how far the archive is, so a
seam that moves meanwhile is no gap and no repeat (``history``), and each is read before any of it
is given: what fails is read again. Knows no MQTT and no Spark.

Invariant: offsets ascend over all rounds, and the next round begins behind ``through_offset``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

import msgspec
import pyarrow as pa

from perdure.errors import ConfigError, StorageCorrupt, StorageUnavailable
from perdure.pipeline import history, offsets
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import LogIndex, opened
from perdure.pipeline.message_rows import COLUMNS
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.schema import arrow_schema

ROUND_ROWS_MIN: Final = 16
ROUND_ROWS_MAX: Final = 65_536
"""Messages that a round looks at."""
ROUND_BYTES: Final = 16 * 1024 * 1024
"""Of a round's rows in memory; one that has more is followed by a smaller one, and one that has
much less by a larger one."""

ATTEMPTS: Final = 5
"""Of a round whose files or generations go away while it is read."""


class Round(msgspec.Struct, frozen=True):
    """What a round found.

    Attributes:
        rows: by offset, with ``message_rows.COLUMNS``; an Arrow table.
        through_offset: everything up to here was looked at.
    """

    rows: Any
    through_offset: int


@final
class Replay:
    """A range of an archive and its log.

    Args:
        options: the log, ``catalog`` and what of it; its end is where it is now.
        database: identity of the log that a replay before this one has read, or empty.
        after_offset: how far that was.
        leaves_out: prefix of topics that are not given again.

    Raises:
        ConfigError: the log is another one, or messages are missing that were asked for.
        StorageError: the log cannot be read.
    """

    def __init__(
        self,
        options: ReadOptions,
        *,
        database: str = "",
        after_offset: int = 0,
        leaves_out: str = "",
    ) -> None:
        self._options = options
        self._leaves_out = leaves_out
        with opened(options) as index:
            self.database = index.database_id
            if database and database != index.database_id:
                raise ConfigError(
                    f"{options.place} holds another log than the one that was replayed before",
                    path="progress",
                    hint="name another file, or delete this one to begin anew",
                )
            begin = offsets.initial(index, options)
            newest = index.newest()
            # Retention may have dropped all that there was: then the archive has it.
            last = newest.offset if newest else index.generations()[0].since_offset - 1
        self._position = begin
        if after_offset > begin.offset:
            self._position = offsets.position(self.database, begin.generation, after_offset)
        self._end = min(options.reach(last), last)
        self._rows_max = ROUND_ROWS_MIN

    @property
    def begins_after(self) -> int:
        """The offset after which the next round begins."""
        return self._position.offset

    def rounds(self) -> Iterator[Round]:
        """All rounds up to the end, each read when it is asked for.

        Raises:
            ConfigError: messages are missing that were asked for.
            StorageError: log or archive cannot be read.
        """
        while self._position.offset < self._end:
            end, rows = self._read()
            self._position = end
            yield Round(rows, end.offset)
            if rows.nbytes > ROUND_BYTES:
                self._rows_max = max(self._rows_max // 2, ROUND_ROWS_MIN)
            elif rows.nbytes < ROUND_BYTES // 4:
                self._rows_max = min(self._rows_max * 4, ROUND_ROWS_MAX)

    def _read(self) -> tuple[StreamPosition, Any]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._read_once()
            except StorageUnavailable:
                # Retention has dropped a generation, or files of the archive were put together:
                # the rows are elsewhere now.
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError

    def _read_once(self) -> tuple[StreamPosition, Any]:
        options = self._options
        with opened(options) as index:
            end = self._next(index)
            bounds = Narrowing(after_offset=self._position.offset, until_offset=end.offset)
            parts = history.plan(index, options, bounds)
        batches = [batch for part in parts for batch in history.read(part, COLUMNS)]
        rows = pa.Table.from_batches(batches, arrow_schema(COLUMNS)).sort_by("offset")
        return end, _without(rows, self._leaves_out)

    def _next(self, index: LogIndex) -> StreamPosition:
        """Where this round ends."""
        options, start = self._options, self._position
        end = history.latest(index, start, options, rows_max=self._rows_max, cap=self._end)
        if end.offset > start.offset:
            return end
        raise StorageCorrupt(
            f"{options.place} ended at offset {self._end} and now ends at {start.offset}"
        )


def _without(rows: Any, prefix: str) -> Any:
    """Rows whose topic does not begin so."""
    if not prefix or not rows.num_rows:
        return rows
    from pyarrow import compute

    return rows.filter(compute.invert(compute.starts_with(rows.column("topic"), prefix)))
