"""What a durable session is owed beyond its cursor: read, put in order, numbered.

Two sources in one ascending order: the messages that its subscriptions match in the log (or, where
the store has one, in its queue), and the entries of its private stream. ``CatchUp`` reads and
merges with the functions of this room, and an operator's list of a queue (``PendingQueue``) does
too, so that what is shown is what the client gets when it comes back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol, TypeAlias, final

from perdure.model import InboxEntry, Message, StoredSession
from perdure.session.seqno import packet_id_of
from perdure.session.subscriptions import SessionSubscriptions
from perdure.storage.capabilities import Capabilities
from perdure.storage.contract import ReadResult
from perdure.storage.device_queue import EntryState, QueuedEntry

CHUNK: Final = 256
"""Messages of one page of ``PendingQueue``."""

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes of one page of ``PendingQueue``."""

Item: TypeAlias = Message | InboxEntry


class Store(Protocol):
    """What of a ``storage.contract.Database`` is needed here."""

    @property
    def capabilities(self) -> Capabilities:
        """Whether it has a queue for each session."""
        ...

    @property
    def last_offset(self) -> int:
        """The last offset that was given out."""
        ...

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """Recorded messages."""
        ...

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """Entries of a private stream."""
        ...


@final
class PendingPage:
    """One page.

    Attributes:
        messages: candidates from the log: ``SessionSubscriptions`` decides on each.
        entries: of the private stream.
        through: nothing else is owed up to this offset.
    """

    __slots__ = ("entries", "messages", "through")

    def __init__(self, messages: list[Message], entries: list[InboxEntry], through: int) -> None:
        self.messages = messages
        self.entries = entries
        self.through = through


async def read_page(
    database: Store,
    client_id: str,
    filters: list[str],
    *,
    durable: bool,
    after: int,
    fence: int,
    chunk: int,
    bytes_max: int,
) -> PendingPage:
    """The next page of both sources.

    Args:
        database: where the session is.
        client_id: whose it is.
        filters: what can have matched after ``after`` (``SessionSubscriptions.filters``).
        durable: it has a private stream, and where the store has one a queue.
        after, fence: exclusive and inclusive bounds.
        chunk, bytes_max: most of one page.
    """
    messages: list[Message] = []
    through = fence
    if filters and fence > after:
        queues = database.capabilities.queues
        if queues is not None and durable:
            page = await queues.read_queue(
                client_id, after_offset=after, until_offset=fence, limit=chunk, bytes_max=bytes_max
            )
        else:
            page = await database.read(
                filters, after_offset=after, until_offset=fence, limit=chunk, bytes_max=bytes_max
            )
        messages = page.messages
        through = page.through_offset
    entries: list[InboxEntry] = []
    if durable and through > after:
        entries = await database.read_inbox(
            client_id, after_offset=after, until_offset=through, limit=chunk
        )
        if len(entries) == chunk:
            through = entries[-1].offset
            messages = [m for m in messages if m.offset <= through]
    return PendingPage(messages, entries, through)


def merged(messages: list[Message], entries: list[InboxEntry]) -> Sequence[Item]:
    """Both in one order. A message that retention has carried over into the private stream, and
    whose generation is still there, comes once: as the entry."""
    if not entries:
        return messages
    items: list[Item] = []
    place = 0
    for message in messages:
        while place < len(entries) and entries[place].offset < message.offset:
            items.append(entries[place])
            place += 1
        if place < len(entries) and entries[place].offset == message.offset:
            continue
        items.append(message)
    items += entries[place:]
    return items


@final
class PendingQueue:
    """The queue that a stored session amounts to; read only.

    Args:
        database: where it is.
        stored: the session.
        now_us: what has expired by then and was never sent is left out, as when it is sent.

    Attributes:
        last_serial: highest serial number that is taken, once all entries were read.
    """

    def __init__(self, database: Store, stored: StoredSession, *, now_us: int) -> None:
        self._database = database
        self._stored = stored
        self._now_us = now_us
        cursor = stored.cursor
        self._settled = frozenset(cursor.settled)
        self._released = frozenset(cursor.released)
        self.last_serial = cursor.serial

    @property
    def last_packet_id(self) -> int:
        """The packet identifier of ``last_serial``; 0 = none was ever given."""
        return packet_id_of(self.last_serial) if self.last_serial else 0

    async def entries(self) -> AsyncIterator[QueuedEntry]:
        """What the client is owed, oldest first."""
        stored = self._stored
        client_id = stored.record.client_id
        interest = SessionSubscriptions(client_id, stored.subscriptions)
        self.last_serial = stored.cursor.serial
        position, fence = stored.cursor.offset, self._database.last_offset
        while position < fence:
            page = await read_page(
                self._database,
                client_id,
                interest.filters(position),
                durable=True,
                after=position,
                fence=fence,
                chunk=CHUNK,
                bytes_max=CHUNK_BYTES,
            )
            for item in merged(page.messages, page.entries):
                entry = self._entry_of(item, interest)
                if entry is not None:
                    yield entry
            position = page.through

    def _entry_of(self, item: Item, interest: SessionSubscriptions) -> QueuedEntry | None:
        forget_at_us = 0
        if isinstance(item, InboxEntry):
            # ``Outbound.pass_to``: the numbers that are left out belong to no message.
            self.last_serial = max(self.last_serial + 1, item.serial)
            if item.message is None:
                return None
            message, forget_at_us = item.message, item.forget_at_us
            qos, retain, identifiers = item.qos, item.retain, item.identifiers
        else:
            wanted = interest.wants(item)
            if wanted is None or not wanted.qos:
                return None
            self.last_serial += 1
            message = item
            qos, retain, identifiers = wanted.qos, wanted.retain, wanted.identifiers
        serial = self.last_serial
        if serial in self._settled:
            return None
        state = EntryState.PUBREL if serial in self._released else EntryState.PUBLISH
        if state is EntryState.PUBREL:
            message, qos, forget_at_us = without_payload(message), 2, 0
        elif serial > self._stored.cursor.sent and self._is_past(item, message):
            return None
        return QueuedEntry(
            serial=serial,
            packet_id=packet_id_of(serial),
            state=state,
            message=message,
            qos=qos,
            retain=retain,
            identifiers=identifiers,
            forget_at_us=forget_at_us,
        )

    def _is_past(self, item: Item, message: Message) -> bool:
        """Whether a message whose sending is not on record will not be sent any more."""
        now_us = self._now_us
        if isinstance(item, InboxEntry) and 0 < item.forget_at_us <= now_us:
            return True
        # What a connection that was cut may have sent goes out again, past its expiry or not.
        return item.offset > self._stored.record.cut_offset and (
            0 < message.expires_at_us <= now_us
        )


def without_payload(message: Message) -> Message:
    """What is left of a message once only its PUBREL is owed."""
    return Message(
        message.topic,
        b"",
        message.qos,
        message.retain,
        message.publisher,
        message.properties,
        0,
        message.published_at_us,
        message.offset,
    )
