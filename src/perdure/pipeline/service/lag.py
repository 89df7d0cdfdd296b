"""How far an archive is behind the end of the log, in time and in messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, final

from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import LogIndex, opened
from perdure.pipeline.log_source import plan, read
from perdure.pipeline.options import ReadOptions
from perdure.storage.pipeline_runs import RunState

COUNTED_MAX: Final = 1_000_000
"""Messages are counted up to here, which takes about a second."""


@final
class LagWatch:
    """Says in a state how far its archive is behind, again and again.

    What was counted once is not read again, as long as the archive stays where it is. So a look
    while a catalog is away for hours costs no more than what has come since the last one.

    Args:
        options: the log, and what of it is wanted.
        told: up to which offset an archive has said to have a database, where its state does not
            know, as after a start while its place cannot be reached; 0 = it has said nothing.
        counted_max: most messages that are counted.
    """

    def __init__(
        self,
        options: ReadOptions,
        told: Callable[[str], int] = lambda _: 0,
        *,
        counted_max: int = COUNTED_MAX,
    ) -> None:
        self._options, self._told, self._counted_max = options, told, counted_max
        self._lock = threading.Lock()
        self._begin = self._reached = self._count = 0

    def look(self, state: RunState) -> None:
        """Say how far its archive is behind now.

        Raises:
            StorageError: the log cannot be read; the state stays as it was.
        """
        with self._lock:
            offset = state.offset
            with opened(self._options) as index:
                newest = index.newest()
                begin = offset or self._begin_of(index)
                # A first generation has every offset up from 1, and nothing that is as old.
                since = offset or max(begin, index.generations()[0].created_at_us - 1)
                if begin != self._begin:
                    self._begin = self._reached = begin
                    self._count = 0
                end = newest.offset if newest else 0
                self._look_to(index, end)
            if state.offset == offset:
                # Else a round has ended meanwhile, and its own look follows.
                state.behind_us = max(0, end - since)
                state.behind_messages = min(self._count, self._counted_max)
                state.behind_is_bound = self._count > self._counted_max

    def _begin_of(self, index: LogIndex) -> int:
        """Where an archive is that has not said how far it is here: all of the log is left."""
        told = self._told(index.database_id)
        return told or max(self._options.after_offset, index.generations()[0].since_offset - 1)

    def _look_to(self, index: LogIndex, end: int) -> None:
        if end <= self._reached or self._count > self._counted_max:
            return
        part = self._options.between(max(self._reached, self._options.after_offset), end)
        count = self._count
        for each in plan(index, part, Narrowing()):
            for batch in read(each, ["offset"]):
                count += batch.num_rows
                if count > self._counted_max:
                    self._count = count
                    return
        self._reached, self._count = end, count
