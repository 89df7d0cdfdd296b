"""Reads the rows of pending messages page by page, from whatever has them.

What has them is an argument and a protocol: a database, a view of one that nobody writes, or a
store's queue of the session in place of the log. It holds at least the messages that the session
is owed, and ``PendingMessages`` decides on each of them as it does on those of the log, so the
order and the serial numbers are the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol, final

from perdure.model import InboxEntry, Message, StoredSession
from perdure.session.pending import DeliveryProgress, PendingMessage, PendingMessages
from perdure.session.subscriptions import SessionSubscriptions

CHUNK: Final = 256
"""Messages of one page of ``pending_messages``."""

LOOKED_AT_MAX: Final = 1_000
"""Messages that are looked at where counting them is not exact."""

HEAD_CHUNK: Final = 64
"""Messages of one page where the oldest is looked for."""

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes of one page of ``pending_messages``."""


class Recorded(Protocol):
    """A page of the log."""

    @property
    def messages(self) -> list[Message]:
        """In order of offsets."""
        ...

    @property
    def through_offset(self) -> int:
        """Nothing else matches up to this offset."""
        ...


class Counted(Protocol):
    """What one look at the log has counted."""

    @property
    def count(self) -> int:
        """Messages."""
        ...

    @property
    def through_offset(self) -> int:
        """Nothing else matches up to this offset."""
        ...


class Rows(Protocol):
    """Both sources; a ``storage.contract.Database`` is one."""

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> Recorded:
        """Recorded messages."""
        ...

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """Entries of a private stream."""
        ...


class CountedRows(Rows, Protocol):
    """Rows that can be counted without reading them."""

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        """Recorded messages that match, a page of them."""
        ...


@final
class PendingPage:
    """One page.

    Attributes:
        messages: candidates from the log: ``PendingMessages`` decides on each.
        entries: of the private stream.
        through: nothing else is owed up to this offset.
        of_log: the log was read for it.
    """

    __slots__ = ("entries", "messages", "of_log", "through")

    def __init__(
        self, messages: list[Message], entries: list[InboxEntry], through: int, *, of_log: bool
    ) -> None:
        self.messages = messages
        self.of_log = of_log
        self.entries = entries
        self.through = through


async def read_page(
    rows: Rows,
    subscriptions: SessionSubscriptions,
    *,
    durable: bool,
    after: int,
    until: int,
    chunk: int,
    bytes_max: int,
) -> PendingPage:
    """The next page of both sources.

    Args:
        rows: where they are.
        subscriptions: of the session.
        durable: it has a private stream.
        after, until: exclusive and inclusive bounds.
        chunk, bytes_max: most of one page; 0 bytes = no bound.
    """
    messages: list[Message] = []
    through = until
    filters: Sequence[str] = subscriptions.filters(after) if until > after else ()
    of_log = len(filters) > 0
    if of_log:
        page = await rows.read(
            filters, after_offset=after, until_offset=until, limit=chunk, bytes_max=bytes_max
        )
        messages = page.messages
        through = page.through_offset
    entries: list[InboxEntry] = []
    if durable and through > after:
        entries = await rows.read_inbox(
            subscriptions.client_id, after_offset=after, until_offset=through, limit=chunk
        )
        if len(entries) == chunk:
            through = entries[-1].offset
            messages = [m for m in messages if m.offset <= through]
    return PendingPage(messages, entries, through, of_log=of_log)


async def read_pages(
    rows: Rows,
    subscriptions: SessionSubscriptions,
    *,
    durable: bool,
    after: int,
    until: int,
    chunk: int = CHUNK,
    bytes_max: int = CHUNK_BYTES,
) -> AsyncGenerator[PendingPage, None]:
    """All pages of ``(after, until]``; see ``read_page``."""
    while after < until:
        page = await read_page(
            rows,
            subscriptions,
            durable=durable,
            after=after,
            until=until,
            chunk=chunk,
            bytes_max=bytes_max,
        )
        yield page
        after = page.through


@final
class StoredQueue:
    """The queue that a stored session amounts to; read only.

    Args:
        rows: where it is.
        stored: the session.
        until: last offset that is looked at.
        chunk: messages of one page.

    Attributes:
        progress: what became of each message.
        last_serial: highest serial number that is taken, as far as it was read.
    """

    def __init__(
        self, rows: Rows, stored: StoredSession, *, until: int, chunk: int = CHUNK
    ) -> None:
        self._rows = rows
        self._chunk = chunk
        self._stored = stored
        self._until = until
        self.progress = DeliveryProgress(stored.cursor, stored.record.cut_offset)
        self.last_serial = stored.cursor.serial

    async def messages(self) -> AsyncGenerator[PendingMessage, None]:
        """What is beyond the cursor, oldest first: settled ones and tombstones too, for they have
        their numbers."""
        stored = self._stored
        subscriptions = SessionSubscriptions(stored.record.client_id, stored.subscriptions)
        pending = PendingMessages(subscriptions, stored.cursor.serial)
        self.last_serial = pending.serial
        pages = read_pages(
            self._rows,
            subscriptions,
            durable=True,
            after=stored.cursor.offset,
            until=self._until,
            chunk=self._chunk,
        )
        async with aclosing(pages):
            async for page in pages:
                for message in pending.page(page.messages, page.entries):
                    self.last_serial = message.serial
                    yield message


async def oldest_pending(rows: Rows, stored: StoredSession, *, until: int) -> PendingMessage | None:
    """The oldest message that a session is owed; None if it is not among the first
    ``LOOKED_AT_MAX`` that take a serial number.

    Args:
        rows: where it is.
        stored: the session.
        until: last offset that is looked at.
    """
    queue = StoredQueue(rows, stored, until=until, chunk=HEAD_CHUNK)
    count = 0
    async with aclosing(queue.messages()) as messages:
        async for pending in messages:
            if not queue.progress.is_settled(pending):
                return pending
            count += 1
            if count >= LOOKED_AT_MAX:
                break
    return None


async def settled_offsets(rows: Rows, stored: StoredSession, *, until: int) -> set[int]:
    """What the client of a stored session has acknowledged before something older.

    Args:
        rows: where it is.
        stored: the session.
        until: last offset that is looked at.
    """
    found: set[int] = set()
    left = set(stored.cursor.settled)
    if not left:
        return found
    queue = StoredQueue(rows, stored, until=until)
    async with aclosing(queue.messages()) as messages:
        async for pending in messages:
            if pending.serial in left:
                left.remove(pending.serial)
                found.add(pending.offset)
                if not left:
                    break
    return found


async def count_recorded(
    rows: CountedRows,
    filters: Sequence[str],
    *,
    after: int,
    until: int,
    limit: int,
    page: int = 0,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """How many messages match, ``limit`` at most.

    Args:
        rows: where they are.
        filters: topic filters.
        after, until: exclusive and inclusive bounds.
        limit: of more no more are counted.
        page: messages that are counted in one go; 0 = all of them.
        pause: awaited between two pages; None = the rows pause by themselves.
    """
    total = 0
    while after < until and total < limit:
        left = limit - total
        found = await rows.count(
            filters, after_offset=after, until_offset=until, limit=min(left, page or left)
        )
        total += found.count
        after = found.through_offset
        if pause is not None:
            await pause()
    return total


async def count_pending(
    rows: CountedRows, stored: StoredSession, *, until: int, limit: int
) -> tuple[int, bool]:
    """How many messages a session is owed, and whether that is exact.

    Where every message of the log that matches a filter is owed, and nothing is in the private
    stream as well, they are counted without reading them. Else they are looked at; where they are
    too many for that, what matches is counted: an upper bound.

    Args:
        rows: where they are.
        stored: the session.
        until: last offset that is looked at.
        limit: of each source no more are counted, and the count is a lower bound.
    """
    cursor = stored.cursor
    subscriptions = SessionSubscriptions(stored.record.client_id, stored.subscriptions)
    after = subscriptions.begin(cursor.offset)
    filters = subscriptions.filters(after)
    count = 0
    if filters and after < until:
        count = await count_recorded(rows, filters, after=after, until=until, limit=limit)
    entries = await rows.read_inbox(
        subscriptions.client_id, after_offset=cursor.offset, until_offset=until, limit=limit
    )
    # One that retention has carried over may be in the log still, and a tombstone is not owed.
    are_owed = subscriptions.are_filters(after) and all(
        entry.message is not None and entry.message.offset != entry.offset for entry in entries
    )
    if not are_owed and count + len(entries) <= LOOKED_AT_MAX:
        queue = StoredQueue(rows, stored, until=until)
        owed = 0
        async for pending in queue.messages():
            owed += not queue.progress.is_settled(pending)
        return owed, True
    is_whole = count < limit and len(entries) < limit
    count += sum(1 for entry in entries if entry.message is not None)
    return max(0, count - len(cursor.settled)), are_owed and is_whole
