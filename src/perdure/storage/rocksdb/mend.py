"""Makes the rows of a database agree again, after some of them were lost.

What ``check`` finds is settled in favour of messages: a counter takes what was counted, an index
entry that is missing is made, and what refers to nothing is taken away and kept beside.

Invariant: a row is deleted only after it was handed to ``keep``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perdure.errors import StorageCorrupt
from perdure.storage.codec import decode_cursor, decode_session, decode_subscription
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.check import NOT_BY_FILTER, Checker
from perdure.storage.rocksdb.engine import (
    ALL_END,
    FIXED_TABLES,
    INBOX,
    META,
    RETAINED,
    STATE,
    Engine,
    Operations,
)
from perdure.storage.rocksdb.generations import Generation, Generations, counters_value
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.layout_v1_keys import pack_offset, unpack_data
from perdure.storage.rocksdb.marks import Marks

_ROWS_MAX: Final = 10_000

Keep = Callable[[str, bytes, bytes], None]
"""Takes a row that is about to be deleted: table, key, value."""


def mend(engine: Engine, generations: Generations, marks: Marks, keep: Keep) -> int:
    """One pass; a later one may find what this one has brought to light.

    Returns:
        Number of rows that were changed.
    """
    marks.last_offset = max(marks.last_offset, _highest_offset(engine, generations))
    operations: Operations = []
    changed = 0
    for finding in Checker(engine, generations, marks).run():
        key = bytes.fromhex(finding.key)
        value = engine.get(finding.table, key) if key and finding.table in engine.tables else None
        if value is None or (finding.table == META and key in (keys.FORMAT, keys.HIGH)):
            continue
        changed += 1
        made = _made(generations, finding.table, key, value, finding.problem)
        if made is None:
            keep(finding.table, key, value)
            made = [finding.table, key, None]
        operations += made
        if len(operations) >= 3 * _ROWS_MAX:
            engine.write(operations)
            operations = []
    engine.write(operations)
    return changed + _count(engine, generations, marks)


def _made(
    generations: Generations, table: str, key: bytes, value: bytes, problem: str
) -> Operations | None:
    """What makes a row right without deleting it; None = nothing does."""
    if problem == "a varying level has no index entry":
        for generation in generations:
            layout = generation.layout
            if table in layout.tables and isinstance(layout, SkipScanLayout):
                return layout.index_entries.mended(key)
    if problem == "its deadline is not in the index":
        record = decode_session(value)
        return [STATE, keys.deadline(record.deadline_us, record.client_id), b""]
    if problem == NOT_BY_FILTER:
        client_id = keys.owner_of(key)[3:].decode()
        return [STATE, keys.subscriber_of(client_id, decode_subscription(value)), b""]
    return None


def _highest_offset(engine: Engine, generations: Generations) -> int:
    """The highest offset that any row has."""
    highest = 0
    for generation in generations:
        if isinstance(generation.layout, SkipScanLayout):
            for key in engine.keys(generation.layout.tables[0], b"", ALL_END):
                if len(key) >= 16:
                    highest = max(highest, unpack_data(key)[1])
    for key in engine.keys(INBOX, b"", ALL_END):
        highest = max(highest, keys.offset_of(key))
    for key, value in engine.items(STATE, b"x", b"y"):
        if key[len(keys.owner_of(key)) :] == b"c":
            try:
                highest = max(highest, decode_cursor(value).offset)
            except StorageCorrupt:
                continue
    return highest


def _count(engine: Engine, generations: Generations, marks: Marks) -> int:
    """Put what is there into the counters; returns how many rows of them were wrong."""
    operations: Operations = []
    for generation in generations:
        operations += _counters(engine, generation, marks)
    changed = len(operations) // 3
    counted = (marks.session_count, marks.retained_count, marks.retained_bytes)
    retained = [len(key) + len(value) for key, value in engine.items(RETAINED, b"", ALL_END)]
    marks.session_count = sum(1 for _ in engine.keys(STATE, b"s", b"t"))
    marks.retained_count, marks.retained_bytes = len(retained), sum(retained)
    if counted != (marks.session_count, marks.retained_count, marks.retained_bytes):
        changed += 1
    marks.commit += 1
    operations += (META, keys.HIGH, marks.encode())
    engine.write(operations)
    return changed


def _counters(engine: Engine, generation: Generation, marks: Marks) -> Operations:
    header, number = generation.header, generation.header.generation
    until = header.until_offset or marks.last_offset + 1
    found = generation.layout.check(since_offset=header.since_offset, until_offset=until)
    count = next((each for each in found if isinstance(each, int)), 0)
    if count == generation.message_count:
        return []
    # The points count from the beginning: behind a loss they are too high, and so upper bounds
    # no more. Without any, everything since the beginning is read where a bound is asked for.
    operations: Operations = [META, keys.generation_counters(number), counters_value(count)]
    prefix = keys.generation_points(number)
    for key in engine.keys(META, prefix, prefix + pack_offset(2**64 - 1)):
        operations += (META, key, None)
    return operations


def create_missing_tables(engine: Engine, names: set[str]) -> list[str]:
    """Make tables that should be there, in the order of their names."""
    missing = sorted(names - engine.tables - set(FIXED_TABLES))
    for name in missing:
        engine.create_table(name)
    return missing
