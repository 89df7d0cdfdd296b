"""Tells of messages that retention dropped before a read had them. Knows no Spark.

What was passed over is in no checkpoint and in no count of Spark's: this line, in the log of the
driver or of the executor that met it, is all that says so.
"""

from __future__ import annotations

import logging
from typing import Final

from perdure.config.units import format_time
from perdure.pipeline import offsets
from perdure.pipeline.log_index import LogIndex
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions

_LOG: Final = logging.getLogger(__name__)
"""Of the standard library: the processes are Spark's, which keeps what they write to it."""


def span(after: int, until: int) -> str:
    """The offsets in ``(after, until]``, and when they were taken; ``after`` 0 = from the begin."""
    if after <= 0:
        return f"offsets up to {until} ({format_time(until)})"
    return f"offsets {after + 1} to {until} ({format_time(after + 1)} to {format_time(until)})"


def tell_unread(
    files: LogIndex, start: StreamPosition, end: StreamPosition, options: ReadOptions
) -> None:
    """Warn of what was dropped of a micro-batch before it was planned.

    Args:
        files: the log.
        start, end: of the micro-batch.
        options: of the stream, whose check has passed.
    """
    lost = min(offsets.lost_until(files, start), end.offset)
    # An archive has what the log has dropped.
    if lost and not options.catalog:
        tell(options.place, start.offset, lost)


def tell(place: str, after: int, until: int, *, while_reading: bool = False) -> None:
    """Warn that what a log had in ``(after, until]`` is not read.

    Args:
        place: of the log.
        after, until: offsets.
        while_reading: some of it may have been read before it was dropped.
    """
    which = "what had not been read of them is" if while_reading else "they are"
    _LOG.warning(
        "perdure: %s: %s were dropped unread; %s passed over, as onDataLoss is skip",
        place,
        span(after, until),
        which,
    )
