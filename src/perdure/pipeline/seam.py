"""Reads a part of the log, and from the archive what retention drops of it meanwhile.

A part is planned before it is read, maybe long before, and by then the log may have let go of it:
the archive has it, or retention would have waited. So its range is planned anew, and what was
given by then is left out. Without an archive that gives what is left, for who goes on where
messages were dropped unread. Knows no Spark.

Invariant: the rows are those of the part as it was planned, each once, but for those that were
dropped where that is to be passed over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import StorageUnavailable
from perdure.limits import OFFSET_MAX
from perdure.pipeline import history, log_index, passed_over
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_source import Part, Taken
from perdure.pipeline.options import ReadOptions


def read(part: history.AnyPart, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
    """The rows of a part as record batches.

    Args:
        part: of a read with these options.
        columns: wanted, in order.
        options: checked; without ``catalog`` there is the log alone.

    Raises:
        StorageUnavailable: the log or the archive is away, or the log has dropped some of it, and
            that is not to be passed over.
        ConfigError: the archive has not what the log has dropped.
    """
    if not isinstance(part, Part):
        yield from history.read(part, columns)
        return
    if not options.catalog and (options.whole or not options.skip_data_loss):
        yield from _all_of(part, columns, options)
        return
    taken = Taken(columns)
    left: Sequence[history.AnyPart] = [part]
    seam = part.slices[0].after_offset
    while True:
        try:
            for each in left:
                for batch in history.read(each, taken.wanted):
                    fresh = taken.take(batch)
                    if fresh.num_rows:
                        yield fresh
        except StorageUnavailable:
            taken.has_failed = True
            with log_index.opened(options) as index:
                dropped = index.generations()[0].since_offset - 1
                if dropped <= seam:
                    raise
                if not options.catalog:
                    lost = min(dropped, part.slices[-1].until_offset)
                    passed_over.tell(options.place, seam, lost, while_reading=True)
                # It is further each time, so this ends.
                seam = dropped
                left = history.plan(index, options.between(0, OFFSET_MAX), _bounds(part))
        else:
            return


def _all_of(part: Part, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
    """The rows of a part that must not lack any.

    Raises:
        StorageUnavailable: the log is away, or has dropped some of it; says which offsets.
    """
    try:
        yield from history.read(part, columns)
    except StorageUnavailable as gone:
        after, until = part.slices[0].after_offset, part.slices[-1].until_offset
        dropped = 0
        # Where it cannot be looked at, what went wrong is what is told.
        with contextlib.suppress(StorageUnavailable), log_index.opened(options) as index:
            dropped = index.generations()[0].since_offset - 1
        if dropped <= after:
            raise
        raise StorageUnavailable(
            f"{gone.message}: {passed_over.span(after, min(dropped, until))} were to be read",
            hint=gone.hint,
        ) from gone


def _bounds(part: Part) -> Narrowing:
    """What a part was planned to have."""
    return Narrowing(
        filter_sets=part.filter_sets,
        after_offset=part.slices[0].after_offset,
        until_offset=part.slices[-1].until_offset,
        published_from=part.published_from,
        published_until=part.published_until,
    )
