"""Looks at every row of a database and says what is wrong with it.

For a stopped broker's directory, or beside a running one through a read-only view. Repairs
nothing and deletes nothing. What it proves when it finds nothing:

- every row has a known kind, and its value decodes;
- log: each message lies in its generation and its stream, each varying level has its index entry
  and no index entry is left over, and the counters agree;
- sessions: cursors make sense, the indexes by deadline and by filter agree with the records in both
  directions, and no row belongs to a session that is not there;
- no offset is above the last one that was allocated.

On a ``SkippingEngine`` it goes on behind what cannot be read, and says at the end what that was and
which sessions it touches.

Invariant: memory is bounded, whatever the size of the database.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, final

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Cursor
from perdure.storage.codec import (
    decode_cursor,
    decode_group,
    decode_retained,
    decode_session,
    decode_subscription,
)
from perdure.storage.contract import Finding
from perdure.storage.entry_run import decode_entries
from perdure.storage.retained_walk import retained_topic
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import (
    ALL_END,
    FIXED_TABLES,
    INBOX,
    META,
    RETAINED,
    STATE,
    Engine,
)
from perdure.storage.rocksdb.generations import Generation, Generations
from perdure.storage.rocksdb.layout import table_generation
from perdure.storage.rocksdb.marks import Marks
from perdure.storage.rocksdb.opening import INDEXED, decode_format
from perdure.storage.rocksdb.skipping import SkippingEngine
from perdure.storage.rocksdb.touched import explain

NOT_BY_FILTER: Final = "its filter is not in the index"

_BROKEN = (StorageCorrupt, FormatTooNew, struct.error, UnicodeDecodeError, IndexError)


@final
class Checker:
    """One pass over a database."""

    def __init__(self, engine: Engine, generations: Generations, marks: Marks) -> None:
        self._engine = engine
        self._generations = generations
        self._marks = marks
        found = engine.get(META, keys.FORMAT)
        # Without a row that says what the database is, it is not known to have one.
        self._is_indexed = found is not None and decode_format(found).version >= INDEXED

    def run(self) -> Iterator[Finding]:
        """Everything that is wrong."""
        yield from self._check_meta()
        yield from self._check_tables()
        for generation in self._generations:
            yield from self._check_generation(generation)
        yield from self._check_state()
        yield from self._check_inbox()
        yield from self._check_retained()
        if isinstance(self._engine, SkippingEngine):
            for gap in self._engine.gaps.copy():
                yield from explain(gap, self._engine, self._generations, self._marks.last_offset)

    # -- the log ---------------------------------------------------------------------------

    def _check_meta(self) -> Iterator[Finding]:
        known = {generation.header.generation for generation in self._generations}
        # Topic structures and counters were decoded when the database was opened.
        for key in self._engine.keys(META, b"", ALL_END):
            if key in (keys.FORMAT, keys.HIGH) or key[:1] == keys.NOTE:
                continue
            kind = key[:1]
            if kind not in b"GNPTX" or len(key) < 5:
                yield Finding(META, key.hex(), "a row of unknown kind")
            elif kind in b"NPT" and int.from_bytes(key[1:5]) not in known:
                yield Finding(META, key.hex(), "a row of a generation that is not there")

    def _check_tables(self) -> Iterator[Finding]:
        known = {generation.header.generation for generation in self._generations}
        for name in sorted(self._engine.tables - set(FIXED_TABLES)):
            number = table_generation(name)
            if not number:
                yield Finding(name, "", "a table of unknown kind")
            elif number not in known and not self._is_leftover(name, number):
                yield Finding(name, "", "messages of a generation that has no header")

    def _is_leftover(self, name: str, number: int) -> bool:
        """Whether the next start may remove the table."""
        if self._engine.get(META, keys.generation_dropped(number)) is not None:
            return True
        return next(self._engine.keys(name, b"", ALL_END), None) is None

    def _check_generation(self, generation: Generation) -> Iterator[Finding]:
        header = generation.header
        until = header.until_offset or self._marks.last_offset + 1
        counted = 0
        for found in generation.layout.check(since_offset=header.since_offset, until_offset=until):
            if isinstance(found, int):
                counted = found
            else:
                yield found
        if counted != generation.message_count:
            yield Finding(
                generation.layout.tables[0],
                "",
                f"{counted} messages, but {generation.message_count} were counted",
            )
        points = list(zip(generation.offsets, generation.counts, strict=True))
        if points != sorted(points) or (points and points[-1][1] > generation.message_count):
            yield Finding(META, "", f"the counts of generation {header.generation} do not ascend")

    # -- sessions --------------------------------------------------------------------------

    def _check_state(self) -> Iterator[Finding]:
        sessions = 0
        for key, value in self._engine.items(STATE, b"", ALL_END):
            try:
                if key[:1] == b"s":
                    sessions += 1
                    problem = self._session_problem(key, value)
                elif key[:1] == b"d":
                    problem = self._deadline_problem(key)
                elif key[:1] == b"x":
                    problem = self._session_row_problem(key, value)
                elif key[:1] == b"g":
                    record = decode_group(value)
                    problem = "" if keys.group(record.key) == key else "another group's record"
                elif key[:1] == b"m":
                    problem = "" if len(key) > len(keys.owner_of(key)) else "a member has no name"
                elif key[:1] == b"f":
                    problem = self._subscriber_problem(key)
                else:
                    problem = "a row of unknown kind"
            except _BROKEN as error:
                problem = str(error)
            if problem:
                yield Finding(STATE, key.hex(), problem)
        if sessions != self._marks.session_count:
            counted = self._marks.session_count
            yield Finding(STATE, "", f"{sessions} sessions, but {counted} were counted")

    def _session_problem(self, key: bytes, value: bytes) -> str:
        record = decode_session(value)
        if keys.session(record.client_id) != key:
            return "another session's record"
        deadline_us = record.deadline_us
        if deadline_us:
            index_key = keys.deadline(deadline_us, record.client_id)
            if self._engine.get(STATE, index_key) is None:
                return "its deadline is not in the index"
        return ""

    def _deadline_problem(self, key: bytes) -> str:
        deadline_us, client_id = keys.parse_deadline(key)
        value = self._engine.get(STATE, keys.session(client_id))
        if value is None or decode_session(value).deadline_us != deadline_us:
            return "a deadline that no session has"
        return ""

    def _session_row_problem(self, key: bytes, value: bytes) -> str:
        rows = keys.owner_of(key)
        client_id = rows[3:].decode()
        if self._engine.get(STATE, keys.session(client_id)) is None:
            return "a row of a session that is not there"
        kind = key[len(rows) : len(rows) + 1]
        if kind == b"c":
            return self._cursor_problem(decode_cursor(value))
        if kind == b"u":
            sub = decode_subscription(value)
            if keys.subscription(rows, sub.since_offset, sub.name) != key:
                return "another subscription's record"
            is_there = self._engine.get(STATE, keys.subscriber_of(client_id, sub)) is not None
            if self._is_indexed and not is_there and not sub.until_offset:
                return NOT_BY_FILTER
            return ""
        if kind == b"r":
            return "" if len(key) == len(rows) + 3 else "not a packet identifier"
        return "a row of unknown kind"

    def _subscriber_problem(self, key: bytes) -> str:
        topic_filter, found, since_offset = keys.parse_subscriber_row(key)
        rows = keys.session_rows(found.client_id)
        value = self._engine.get(STATE, keys.subscription(rows, since_offset, found.name))
        sub = None if value is None else decode_subscription(value)
        holds = sub is not None and not sub.until_offset and sub.filter == topic_filter
        return "" if holds else "an entry by filter of a subscription that is not there"

    def _cursor_problem(self, cursor: Cursor) -> str:
        if cursor.offset > self._marks.last_offset:
            return "the cursor is beyond the last offset"
        for numbers in (cursor.settled, cursor.released):
            if list(numbers) != sorted(set(numbers)) or (numbers and numbers[0] <= cursor.serial):
                return "the cursor's serial numbers do not ascend"
        return ""

    def _check_inbox(self) -> Iterator[Finding]:
        for key, value in self._engine.items(INBOX, b"", ALL_END):
            owner = keys.owner_of(key)
            try:
                offset = keys.offset_of(key)
                found = decode_entries(offset, value)
                own = key[len(owner) + 8 :]
                problem = ""
                is_whole = len(key) >= len(owner) + 8 and own in (b"", keys.TOMBSTONE)
                if key[:1] not in (b"S", b"G") or not is_whole:
                    problem = "a row of unknown kind"
                elif offset > self._marks.last_offset:
                    problem = "an entry beyond the last offset"
                elif key[:1] == b"S" and not self._has_session(owner[3:].decode()):
                    problem = "an entry of a session that is not there"
                elif own and found[-1].message is not None:
                    problem = "an entry where a tombstone belongs"
            except _BROKEN as error:
                problem = str(error)
            if problem:
                yield Finding(INBOX, key.hex(), problem)

    def _has_session(self, client_id: str) -> bool:
        return self._engine.get(STATE, keys.session(client_id)) is not None

    def _check_retained(self) -> Iterator[Finding]:
        counted = size = 0
        for key, value in self._engine.items(RETAINED, b"", ALL_END):
            counted += 1
            size += len(key) + len(value)
            try:
                message = decode_retained(retained_topic(key), value)
                problem = ""
                if message.offset > self._marks.last_offset:
                    problem = "a retained message beyond the last offset"
            except _BROKEN as error:
                problem = str(error)
            if problem:
                yield Finding(RETAINED, key.hex(), problem)
        if size != self._marks.retained_bytes:
            yield Finding(
                RETAINED,
                "",
                f"{size} bytes of retained messages, but {self._marks.retained_bytes} were counted",
            )
        if counted != self._marks.retained_count:
            yield Finding(
                RETAINED,
                "",
                f"{counted} retained messages, but {self._marks.retained_count} were counted",
            )
