"""Reading what a broker keeps in a server: its sessions and what they are owed.

``RemoteDatabase`` reads with the functions of this room, and ``StateReader`` lets a tool do so
beside the broker: it claims nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Self

from perdure.errors import FormatTooNew, StorageCorrupt, UsageError
from perdure.model import Cursor, InboxEntry, Message, SessionRecord, StoredSession, Subscription
from perdure.storage.capabilities import Capabilities
from perdure.storage.codec import decode_cursor, decode_entry, decode_session, decode_subscription
from perdure.storage.contract import ReadResult
from perdure.storage.remote import rows
from perdure.storage.remote.driver import ADDED, CLIENTS, INBOX, META, ROWS, Owner, Reads, Row

PAGE: Final = 1000
"""Sessions read at once."""


async def pages(
    driver: Reads, table: str, owner: Owner, *, limit: int = PAGE, names_only: bool = False
) -> AsyncIterator[list[Row]]:
    """All rows of an owner, ``limit`` at a time."""
    start = b""
    while True:
        page = await driver.scan(
            table, owner, start=start, end=b"", limit=limit, names_only=names_only
        )
        if page:
            yield page
        if len(page) < limit:
            return
        start = page[-1][0] + b"\0"


async def read_session(driver: Reads, client_id: str) -> StoredSession | None:
    """A session from its rows."""
    found = await driver.scan(ROWS, client_id.encode(), start=b"", end=b"", limit=1 << 31)
    return stored_session(found)


def above(client_id: str) -> bytes:
    """Where the names of clients above one begin; all of them, if it is empty."""
    return client_id.encode() + b"\0" if client_id else b""


async def session_ids(driver: Reads, after: str, limit: int) -> list[str]:
    """See ``Database.session_ids``."""
    start = above(after)
    page = await driver.scan(
        CLIENTS, rows.NOBODY, start=start, end=b"", limit=limit, names_only=True
    )
    return [key.decode() for key, _ in page]


async def session_page(driver: Reads, start: bytes) -> tuple[list[bytes], list[SessionRecord]]:
    """Names of clients from ``start`` on, up to ``PAGE`` of them, and their records."""
    page = await driver.scan(CLIENTS, rows.NOBODY, start=start, end=b"", limit=PAGE)
    names = [key for key, _ in page]
    return names, await records_of(driver, names)


async def records_of(driver: Reads, names: Sequence[bytes]) -> list[SessionRecord]:
    """The records of sessions, without those that are gone."""
    if not names:
        return []
    values = await driver.get([(ROWS, name, rows.RECORD_KEY) for name in names])
    return [decode_session(value) for value in values if value is not None]


async def read_entries(
    driver: Reads, table: str, owner: str, *, after: int, end: int, limit: int
) -> list[InboxEntry]:
    """Entries of a private stream, or of what came back to a group; ``end`` 0 = all."""
    start, stop = rows.number(after + 1), rows.number(end) if end else b""
    if stop and stop <= start:
        return []
    found = await driver.scan(table, owner.encode(), start=start, end=stop, limit=limit)
    return [decode_entry(rows.parse_number(key), value) for key, value in found]


async def read_queue_page(
    driver: Reads, client_id: str, *, after: int, until: int, limit: int, bytes_max: int
) -> ReadResult:
    """A page of a queue, with the messages that did not fit into it and stand in rows."""
    added = await driver.scan(
        ADDED,
        client_id.encode(),
        start=rows.number(after + 1),
        end=rows.number(until + 1),
        limit=limit,
    )
    page = await driver.read_queue(
        client_id, after_serial=after, until_serial=until, limit=limit, bytes_max=bytes_max
    )
    through = page.through_offset
    if len(added) >= limit:
        through = min(through, rows.parse_number(added[-1][0]))
    found = {message.offset: message for message in page.messages}
    for _, block in added:
        for message in rows.decode_block(block):
            found[message.offset] = message
    messages: list[Message] = []
    size = 0
    for offset in sorted(found):
        if offset > through:
            break
        message = found[offset]
        size += message.held_bytes()
        if messages and (len(messages) >= limit or (bytes_max and size > bytes_max)):
            return ReadResult(messages, messages[-1].offset)
        messages.append(message)
    return ReadResult(messages, through)


def stored_session(found: Sequence[Row]) -> StoredSession | None:
    """The session in its rows."""
    record: SessionRecord | None = None
    cursor = Cursor()
    subscriptions: list[tuple[bytes, Subscription]] = []
    awaiting: list[int] = []
    for key, value in found:
        kind = key[:1]
        if kind == rows.RECORD_KEY:
            record = decode_session(value)
        elif kind == rows.CURSOR_KEY:
            cursor = decode_cursor(value)
        elif kind == b"u":
            subscriptions.append((key, decode_subscription(value)))
        elif kind == b"r":
            awaiting.append(int.from_bytes(key[1:3]))
        else:
            raise StorageCorrupt(f"a session has a row of kind {kind!r}")
    if record is None:
        return None
    subscriptions.sort(key=lambda pair: pair[0])
    return StoredSession(
        record, cursor, tuple([sub for _, sub in subscriptions]), tuple(sorted(awaiting))
    )


class StateReader:
    """The sessions of a broker in a server, as they are; closes its driver.

    Attributes:
        last_offset: what was written later is not seen.
    """

    def __init__(self, driver: Reads, last_offset: int) -> None:
        self._driver = driver
        self.last_offset = last_offset

    @classmethod
    async def open(cls, driver: Reads) -> Self | None:
        """The state that a connected driver finds; None = there is none.

        Raises:
            FormatTooNew: a later release wrote it.
        """
        wanted = [(META, rows.NOBODY, key) for key in (rows.FORMAT_KEY, rows.HIGH_KEY)]
        version, high = await driver.get(wanted)
        if version is None:
            return None
        if version > rows.FORMAT:
            raise FormatTooNew("the state was written by a later release")
        found = cls(driver, rows.parse_number(high) if high else 0)
        await found._load()
        return found

    async def _load(self) -> None:
        """Read what a subclass holds in memory."""

    @property
    def capabilities(self) -> Capabilities:
        """Each durable session has a queue."""
        return Capabilities(queues=self)

    async def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        """See ``Database.sessions``."""
        start = above(after)
        while True:
            names, records = await session_page(self._driver, start)
            for record in records:
                yield record
            if len(names) < PAGE:
                return
            start = names[-1] + b"\0"

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        """See ``Database.session_ids``."""
        return await session_ids(self._driver, after, limit)

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        """See ``Database.session_records``."""
        names = [each.encode() for each in client_ids]
        return await records_of(self._driver, names)

    async def open_session(self, client_id: str) -> StoredSession | None:
        """All that is stored of a session."""
        return await read_session(self._driver, client_id)

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """See ``Database.read_inbox``."""
        return await read_entries(
            self._driver, INBOX, client_id, after=after_offset, end=until_offset + 1, limit=limit
        )

    async def read_queue(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int, bytes_max: int
    ) -> ReadResult:
        """See ``SessionQueues.read_queue``."""
        return await read_queue_page(
            self._driver,
            client_id,
            after=after_offset,
            until=until_offset,
            limit=limit,
            bytes_max=bytes_max,
        )

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """Not here: in a server a durable session reads its queue."""
        raise UsageError("a state is read by its queues, not by its log")

    async def close(self) -> None:
        """Give the connections back."""
        await self._driver.close()
