"""Cuts the log of a directory behind an offset, for a restore to an earlier moment.

Invariant: rows, index, counters and points of every generation agree afterwards.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from perdure.errors import UsageError
from perdure.model import InboxEntry
from perdure.storage.bundle import count_in, split_row
from perdure.storage.codec import encode_entry
from perdure.storage.entry_run import decode_entries
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import ALL_END, INBOX, META, Engine, Operations, prefix_end
from perdure.storage.rocksdb.generations import Generation, Generations, counters_value
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.layout_v1_keys import DATA_HEAD, pack_offset, unpack_data

_WRITTEN_MAX: Final = 30_000
"""Values in a list of operations, three for each."""

_STREAM: Final = struct.Struct(">Q")


def cut_log(engine: Engine, generations: Generations, at: int) -> int:
    """Delete every message of the log behind an offset.

    Returns:
        How many there were.

    Raises:
        UsageError: a generation that goes beyond it has a layout that cannot be cut.
    """
    behind = [each for each in generations if _reaches_beyond(each, at)]
    for generation in behind:
        if not isinstance(generation.layout, SkipScanLayout):
            raise UsageError(
                f"generation {generation.header.generation} has the layout bitmask, which cannot "
                "be cut",
                hint="restore without --at, or to the end of an earlier backup",
            )
    return sum(_cut_generation(engine, each, at) for each in behind)


def cut_entries(engine: Engine, stays: Callable[[InboxEntry], bool]) -> int:
    """Delete entries of private streams.

    Args:
        engine: of the directory.
        stays: which are kept.

    Returns:
        How many went.
    """
    operations: Operations = []
    count = 0
    for key, value in engine.items(INBOX, b"", ALL_END):
        entries = decode_entries(keys.offset_of(key), value)
        kept = [entry for entry in entries if stays(entry)]
        if len(kept) == len(entries):
            continue
        count += len(entries) - len(kept)
        operations += (INBOX, key, None)
        for entry in kept:
            # Entries of a run that stay have rows of their own.
            row = keys.offset(keys.owner_of(key), entry.offset)
            operations += (INBOX, row, encode_entry(entry))
        if len(operations) >= _WRITTEN_MAX:
            engine.write(operations)
            operations = []
    engine.write(operations)
    return count


def _reaches_beyond(generation: Generation, at: int) -> bool:
    until = generation.header.until_offset
    return not until or until > at + 1


def _cut_generation(engine: Engine, generation: Generation, at: int) -> int:
    layout, number = generation.layout, generation.header.generation
    assert isinstance(layout, SkipScanLayout)
    data = layout.tables[0]
    count = 0
    operations: Operations = []
    for stream, _ in layout.streams():
        head = _STREAM.pack(stream)
        for key, value in engine.items(data, head + pack_offset(at + 1), prefix_end(head)):
            kept = split_row(unpack_data(key)[1], value, 0, at)
            count += count_in(value) - len(kept)
            operations += (data, key, None)
            operations += layout.index_entries.cut(key, at)
            for offset, message in kept:
                # Messages of a bundle that stay have rows of their own.
                row = key[:8] + pack_offset(offset) + key[DATA_HEAD:]
                operations += (data, row, message)
                operations += layout.index_entries.of_row(row)
            if len(operations) >= _WRITTEN_MAX:
                engine.write(operations)
                operations = []
    prefix = keys.generation_points(number)
    for key in engine.keys(META, prefix + pack_offset(at + 1), prefix_end(prefix)):
        operations += (META, key, None)
    left = counters_value(generation.message_count - count)
    operations += (META, keys.generation_counters(number), left)
    engine.write(operations)
    return count
