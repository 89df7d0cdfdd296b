"""Looks at every row of a broker's state in a server and says what is wrong with it.

Works beside the broker, repairs nothing and deletes nothing. What it proves when it finds nothing:

- every row of a known owner has a known kind, and its value decodes;
- log: blocks ascend and do not overlap, each message lies in its generation, and the counters
  agree;
- sessions: each has a record of its own, its cursor makes sense, and its queue can be read;
- no offset is above the highest one that was stored.

A server does not tell which owners have rows that nobody knows of: such rows are not looked for.
What the broker changes while it is looked at is looked at again, and not reported.

Invariant: memory is bounded, whatever the size of the state.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Final, final

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Cursor
from perdure.storage.codec import (
    decode_cursor,
    decode_entry,
    decode_group,
    decode_record,
    decode_retained,
    decode_session,
    decode_subscription,
)
from perdure.storage.contract import Finding
from perdure.storage.remote import rows
from perdure.storage.remote.driver import (
    CLIENTS,
    GROUPS,
    INBOX,
    LOG,
    MEMBERS,
    META,
    RETAINED,
    RETURNED,
    ROWS,
    Owner,
    Reads,
)
from perdure.storage.remote.reader import PAGE, pages, read_queue_page
from perdure.storage.retained_walk import retained_topic

BLOCKS: Final = 16
"""Blocks of the log read at once: each may have half a megabyte."""

QUEUE_PAGE: Final = 500
QUEUE_BYTES: Final = 8 * 1024 * 1024

_BROKEN: Final = (StorageCorrupt, FormatTooNew, struct.error, UnicodeDecodeError, IndexError)


@final
class Checker:
    """One pass over a state."""

    def __init__(self, driver: Reads) -> None:
        self._driver = driver
        self._last_offset = 0

    async def run(self) -> AsyncIterator[Finding]:
        """Everything that is wrong."""
        meta = await self._meta()
        headers: list[rows.Header] = []
        known = {key[1:5] for key in meta if key[:1] == b"G"}
        for key, value in sorted(meta.items()):
            problem = _meta_problem(key, value)
            if not problem and key[:1] in (b"N", b"P") and key[1:5] not in known:
                problem = "a row of a generation that is not there"
            if problem:
                yield Finding(META, key.hex(), problem)
            elif key[:1] == b"G":
                headers.append(decode_record(rows.header_decoder, "generation", value))
        for previous, header in pairwise(headers):
            if previous.until_offset != header.since_offset:
                key = rows.header_key(header.generation)
                yield Finding(META, key.hex(), "does not begin where the one before ends")
        for header in headers:
            async for finding in self._generation(header, meta):
                yield finding
        async for finding in self._sessions():
            yield finding
        async for finding in self._groups():
            yield finding
        async for finding in self._retained():
            yield finding

    async def _meta(self) -> dict[bytes, bytes]:
        found = await self._driver.scan(META, rows.NOBODY, start=b"", end=b"", limit=1 << 31)
        stored = dict(found)
        high = stored.get(rows.HIGH_KEY, b"")
        self._last_offset = rows.parse_number(high) if len(high) == 8 else 0
        return stored

    async def _is_beyond(self, offset: int) -> bool:
        """Whether an offset is above the highest one, now."""
        if offset > self._last_offset:
            await self._meta()
        return offset > self._last_offset

    # -- the log ---------------------------------------------------------------------------

    async def _generation(
        self, header: rows.Header, meta: dict[bytes, bytes]
    ) -> AsyncIterator[Finding]:
        number = header.generation
        owner = rows.generation_owner(number)
        through = self._last_offset
        before = header.since_offset - 1
        count = 0
        async for page in pages(self._driver, LOG, owner, limit=BLOCKS):
            for key, value in page:
                try:
                    messages = rows.decode_block(value)
                    offsets = [message.offset for message in messages]
                    problem = _block_problem(LOG, key, offsets, header, before)
                except _BROKEN as error:
                    offsets, problem = [], str(error)
                if problem:
                    yield Finding(LOG, key.hex(), problem)
                count += sum(offset <= through for offset in offsets)
                before = max([before, *offsets])
        counted = meta.get(rows.counters_key(number), b"")
        now = await self._meta()
        if rows.header_key(number) not in now or now.get(rows.counters_key(number)) != counted:
            # The broker has dropped it or recorded in it meanwhile.
            return
        if _meta_problem(rows.counters_key(number), counted):
            return  # told already
        wanted = rows.parse_counters(counted)[0]
        if wanted != count:
            yield Finding(LOG, owner.hex(), f"{count} messages, but {wanted} were counted")

    # -- sessions --------------------------------------------------------------------------

    async def _sessions(self) -> AsyncIterator[Finding]:
        async for page in pages(self._driver, CLIENTS, rows.NOBODY, names_only=True):
            for owner, _ in page:
                found = await self._driver.scan(ROWS, owner, start=b"", end=b"", limit=1 << 31)
                for key, value in found:
                    problem = await self._row_problem(owner, key, value)
                    if problem:
                        yield Finding(ROWS, (owner + b"\0" + key).hex(), problem)
                if rows.RECORD_KEY not in dict(found) and await self._lacks_record(owner):
                    yield Finding(CLIENTS, owner.hex(), "a session without a record")
                async for finding in self._entries(INBOX, owner):
                    yield finding
                problem = await self._queue_problem(owner)
                if problem:
                    yield Finding("queues", owner.hex(), problem)

    async def _lacks_record(self, owner: Owner) -> bool:
        """Whether a session is named, and has no record, now."""
        named = await self._driver.scan(
            CLIENTS, rows.NOBODY, start=owner, end=owner + b"\0", limit=1, names_only=True
        )
        (record,) = await self._driver.get([(ROWS, owner, rows.RECORD_KEY)])
        return bool(named) and record is None

    async def _row_problem(self, owner: Owner, key: bytes, value: bytes) -> str:
        try:
            kind = key[:1]
            if key == rows.RECORD_KEY:
                record = decode_session(value)
                return "" if record.client_id.encode() == owner else "another session's record"
            if key == rows.CURSOR_KEY:
                cursor = decode_cursor(value)
                if await self._is_beyond(cursor.offset):
                    return "the cursor is beyond the last offset"
                return _cursor_problem(cursor)
            if kind == b"u":
                sub = decode_subscription(value)
                expected = rows.subscription_key(sub.since_offset, sub.name)
                return "" if expected == key else "another subscription's record"
            if kind == b"r":
                return "" if len(key) == 3 else "not a packet identifier"
        except _BROKEN as error:
            return str(error)
        return "a row of unknown kind"

    async def _queue_problem(self, owner: Owner) -> str:
        """Whatever keeps a queue, and what was added to it, from being read."""
        client_id = owner.decode()
        after, until = 0, self._last_offset
        try:
            while after < until:
                page = await read_queue_page(
                    self._driver,
                    client_id,
                    after=after,
                    until=until,
                    limit=QUEUE_PAGE,
                    bytes_max=QUEUE_BYTES,
                )
                after = page.through_offset
        except _BROKEN as error:
            return str(error)
        return ""

    async def _entries(self, table: str, owner: Owner) -> AsyncIterator[Finding]:
        """Entries of a private stream, or of what came back to a group."""
        async for page in pages(self._driver, table, owner):
            for key, value in page:
                problem = ""
                try:
                    offset = rows.parse_number(key)
                    decode_entry(offset, value)
                    if await self._is_beyond(offset):
                        problem = "an entry beyond the last offset"
                except _BROKEN as error:
                    problem = str(error)
                if problem:
                    yield Finding(table, (owner + b"\0" + key).hex(), problem)

    # -- groups and retained messages ------------------------------------------------------

    async def _groups(self) -> AsyncIterator[Finding]:
        async for page in pages(self._driver, GROUPS, rows.NOBODY):
            for key, value in page:
                try:
                    matches = decode_group(value).key.encode() == key
                    problem = "" if matches else "another group's record"
                except _BROKEN as error:
                    problem = str(error)
                if problem:
                    yield Finding(GROUPS, key.hex(), problem)
                async for members in pages(self._driver, MEMBERS, key, names_only=True):
                    for name, _ in members:
                        if not name:
                            yield Finding(MEMBERS, key.hex(), "a member has no name")
                async for finding in self._entries(RETURNED, key):
                    yield finding

    async def _retained(self) -> AsyncIterator[Finding]:
        async for page in pages(self._driver, RETAINED, rows.NOBODY, limit=PAGE // 4):
            for key, value in page:
                problem = ""
                try:
                    message = decode_retained(retained_topic(key), value)
                    if await self._is_beyond(message.offset):
                        problem = "a retained message beyond the last offset"
                except _BROKEN as error:
                    problem = str(error)
                if problem:
                    yield Finding(RETAINED, key.hex(), problem)


def _meta_problem(key: bytes, value: bytes) -> str:
    kind = key[:1]
    try:
        if key == rows.FORMAT_KEY:
            return "" if value == rows.FORMAT else "the format is unknown"
        if key == rows.HIGH_KEY:
            rows.parse_number(value)
        elif kind == b"G" and len(key) == 5:
            decode_record(rows.header_decoder, "generation", value)
        elif kind == b"N" and len(key) == 5:
            rows.parse_counters(value)
        elif kind == b"P" and len(key) == 13:
            rows.parse_number(value)
        else:
            return "a row of unknown kind"
    except _BROKEN as error:
        return str(error)
    return ""


def _block_problem(
    table: str, key: bytes, offsets: Sequence[int], header: rows.Header, before: int
) -> str:
    """What is wrong with where a block is, and with the order in it."""
    if not offsets:
        return "a block without messages"
    if rows.parse_number(key) != offsets[-1]:
        return "a block that does not end at its key"
    until = header.until_offset
    if offsets[0] < header.since_offset or (until and offsets[-1] >= until):
        return "messages of another generation"
    if list(offsets) != sorted(set(offsets)):
        return "a block whose messages do not ascend"
    if table == LOG and offsets[0] <= before:
        return "a block that overlaps the one before"
    return ""


def _cursor_problem(cursor: Cursor) -> str:
    for numbers in (cursor.settled, cursor.released):
        if list(numbers) != sorted(set(numbers)) or (numbers and numbers[0] <= cursor.serial):
            return "the cursor's serial numbers do not ascend"
    return ""
