"""How far an archive is behind the end of the log, in time and in messages."""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.limits import OFFSET_MAX
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.log_index import opened
from perdure.pipeline.log_source import plan, read
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb.bulk import Position

COUNTED_MAX: Final = 1_000_000
"""Messages are counted up to here, which takes about a second."""


class Lag(msgspec.Struct, frozen=True):
    """A distance.

    Attributes:
        behind_us: from a position to the last message; 0 = there is none after it.
        messages: in between.
        is_bound: there are more.
    """

    behind_us: int
    messages: int
    is_bound: bool


def lag_of(options: ReadOptions, offset: int, *, counted_max: int = COUNTED_MAX) -> Lag:
    """What an archive that has everything up to an offset has not got yet.

    Args:
        options: the log, and what of it is wanted.
        offset: of the archive.
        counted_max: most messages that are counted.
    """
    part = options.between(max(offset, options.after_offset), OFFSET_MAX)
    with opened(part) as index:
        newest = index.newest()
        parts = plan(index, part, Narrowing()) if newest and newest.offset > offset else []
    count = 0
    for each in parts:
        for batch in read(each, ["offset"]):
            count += batch.num_rows
            if count > counted_max:
                return Lag(_behind(newest, offset), counted_max, True)
    return Lag(_behind(newest, offset), count, False)


def _behind(newest: Position | None, offset: int) -> int:
    return 0 if newest is None else max(0, newest.offset - offset)
