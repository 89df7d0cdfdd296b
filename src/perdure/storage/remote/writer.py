"""From a batch to the rows and queue entries of a transaction.

It runs when a batch is handed over, on the event loop, and waits for nothing: what must be known
of the stored state is in memory (owners, subscriptions, retained topics, generations).

Invariant: what the members remember is what the server has once it has applied every transaction
that was closed, the open one included.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.codec import encode_cursor, encode_entry, encode_record, encode_retained
from perdure.storage.device_queue import NewEntry
from perdure.storage.entry_by_entry import EntryByEntry
from perdure.storage.remote import rows
from perdure.storage.remote.driver import (
    ADDED,
    CLIENTS,
    GROUPS,
    INBOX,
    MEMBERS,
    META,
    RETAINED,
    RETURNED,
    ROWS,
    Transaction,
)
from perdure.storage.remote.durable_subscriptions import DurableSubscriptions, wants
from perdure.storage.remote.log import RemoteLog
from perdure.storage.remote.sessions import Owners
from perdure.storage.retained_walk import retained_key

ENTRY_OVERHEAD: Final = 64
"""Bytes that an entry of a queue takes besides its message, about."""

IDENTIFIERS_MAX: Final = 255
"""Subscription identifiers that an entry of a queue shows; deliveries have all of them."""

MARK_EVERY: Final = 256
"""Entries between two offsets that are remembered of a queue, to know about how long it is."""


@final
class QueueEnd:
    """What memory knows of a session's queue.

    Attributes:
        until: nothing in it has a higher offset.
        trimmed: nothing in it has an offset up to here.
        added_until: the same as ``until`` for what stands in rows.
        count: entries that were ever queued, those that were there at the start included.
        settled: those of them that are certainly gone.
    """

    __slots__ = ("added_until", "count", "marks", "settled", "trimmed", "until")

    def __init__(self, until: int) -> None:
        self.until = until
        self.trimmed = 0
        self.added_until = until
        self.count = 0
        self.settled = 0
        # Now and then an offset, and the count up to it.
        self.marks: deque[tuple[int, int]] = deque()

    def queued(self, offset: int) -> None:
        """An entry was queued."""
        self.until = offset
        self.count += 1
        if not self.count % MARK_EVERY:
            self.marks.append((offset, self.count))

    def trim(self, offset: int) -> None:
        """Entries up to an offset are gone."""
        self.trimmed = offset
        if offset >= self.until:
            self.settled = self.count
            self.marks.clear()
        while self.marks and self.marks[0][0] <= offset:
            self.settled = self.marks.popleft()[1]


@final
class Writer(EntryByEntry):
    """Applies operations to the open transaction and to what memory holds (``Target``).

    Attributes:
        transaction: the open one.
        owners, durable_subscriptions, log: the state in memory.
        retained: keys of all retained topics, with what their messages count in bytes.
        retained_bytes: their sum.
        loaded_offset: what was stored before this process is at or below it.
    """

    def __init__(self, log: RemoteLog, *, queue_max: int) -> None:
        self._queue_max = queue_max
        self.transaction = Transaction()
        self.owners = Owners()
        self.durable_subscriptions = DurableSubscriptions()
        self.log = log
        self.retained: dict[bytes, int] = {}
        self.retained_bytes: int = 0
        self.loaded_offset = 0
        self._queues: dict[str, QueueEnd] = {}

    def reset(self, loaded_offset: int) -> None:
        """Forget everything; the caller loads it anew."""
        self.transaction = Transaction()
        self.owners = Owners()
        self.durable_subscriptions = DurableSubscriptions()
        self.retained = {}
        self.retained_bytes = 0
        self.loaded_offset = loaded_offset
        self._queues = {}

    def load_queue(self, client_id: str, size: int) -> None:
        """A queue has entries from before the start."""
        self._end(client_id).count = size

    def put_high(self, last_offset: int) -> None:
        """Keep the highest offset."""
        self.transaction.put(META, rows.NOBODY, rows.HIGH_KEY, rows.number(last_offset))

    # -- the log and the queues ------------------------------------------------------------

    def append(self, message: Message) -> None:
        """Record a message, and queue it for every durable session that wants it."""
        transaction = self.transaction
        self.log.append(transaction, message)
        if not message.qos:
            return
        for client_id, options in self.durable_subscriptions.deliveries(message):
            offset = message.offset
            end = self._end(client_id)
            if offset <= end.until or end.count - end.settled >= self._queue_max:
                # The queue is full, which is no reason to forget anything.
                self._add(client_id, end, message)
                continue
            end.queued(offset)
            transaction.append(
                NewEntry(
                    client_id,
                    message,
                    options.qos,
                    options.retain,
                    options.identifiers[:IDENTIFIERS_MAX],
                    position=offset,
                    serial=offset,
                ),
                len(message.payload) + len(message.topic) + ENTRY_OVERHEAD,
            )

    def _end(self, client_id: str) -> QueueEnd:
        end = self._queues.get(client_id)
        if end is None:
            end = self._queues[client_id] = QueueEnd(self.loaded_offset)
        return end

    def _add(self, client_id: str, end: QueueEnd, message: Message) -> None:
        ((_, block),) = rows.encode_blocks([message])
        owner = client_id.encode()
        self.transaction.put(ADDED, owner, rows.number(message.offset), block)
        end.added_until = max(end.added_until, message.offset)

    # -- sessions --------------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        """Create or replace a record."""
        client_id = record.client_id
        owner = client_id.encode()
        if self.owners.epoch(client_id) is None:
            self.transaction.put(CLIENTS, rows.NOBODY, owner, b"")
        self.owners.put(record)
        self.transaction.put(ROWS, owner, rows.RECORD_KEY, encode_record(record))

    def discard_session(self, client_id: str) -> None:
        """Delete everything of a session."""
        owner = client_id.encode()
        transaction = self.transaction
        for table in (ROWS, INBOX, ADDED):
            transaction.drop(table, owner)
        transaction.put(CLIENTS, rows.NOBODY, owner, None)
        transaction.discard_queue(client_id)
        self.owners.discard(client_id)
        self.durable_subscriptions.discard(client_id)
        self._queues.pop(client_id, None)

    def put_cursor(self, client_id: str, cursor: Cursor) -> None:
        """Replace a cursor; what it has passed leaves the queue."""
        owner = client_id.encode()
        transaction = self.transaction
        transaction.put(ROWS, owner, rows.CURSOR_KEY, encode_cursor(cursor))
        end = self._end(client_id)
        offset = cursor.offset
        if offset <= end.trimmed:
            return
        if end.trimmed < end.until:
            transaction.trim_queue(client_id, offset)
        if end.trimmed < end.added_until:
            transaction.trim(ADDED, owner, rows.number(offset))
        end.trim(offset)

    def put_subscription(self, client_id: str, sub: Subscription) -> None:
        """Create or replace a subscription.

        It may hold for messages that are recorded already: those that were not handed out yet
        when it was made.
        """
        key = rows.subscription_key(sub.since_offset, sub.name)
        self.transaction.put(ROWS, client_id.encode(), key, encode_record(sub))
        if not self.durable_subscriptions.put(client_id, sub):
            return
        for message in self.log.recent(sub.since_offset):
            if wants(client_id, sub, message):
                self._add(client_id, self._end(client_id), message)

    def delete_subscription(self, client_id: str, sub: Subscription) -> None:
        """Forget a subscription."""
        key = rows.subscription_key(sub.since_offset, sub.name)
        self.transaction.put(ROWS, client_id.encode(), key, None)
        self.durable_subscriptions.remove(client_id, sub)

    def put_awaiting_release(self, client_id: str, packet_id: int) -> None:
        """Remember an inbound QoS 2 packet identifier."""
        self.transaction.put(ROWS, client_id.encode(), rows.release_key(packet_id), b"")

    def delete_awaiting_release(self, client_id: str, packet_id: int) -> None:
        """Forget one."""
        self.transaction.put(ROWS, client_id.encode(), rows.release_key(packet_id), None)

    def put_inbox(self, client_id: str, entry: InboxEntry) -> None:
        """Add or replace an entry of a private stream."""
        key = rows.number(entry.offset)
        self.transaction.put(INBOX, client_id.encode(), key, encode_entry(entry))

    def trim_inbox(self, client_id: str, through_offset: int) -> None:
        """Delete the entries of a private stream up to an offset."""
        self.transaction.trim(INBOX, client_id.encode(), rows.number(through_offset))

    # -- groups ----------------------------------------------------------------------------

    def put_group(self, record: GroupRecord) -> None:
        """Create or replace a group."""
        self.transaction.put(GROUPS, rows.NOBODY, record.key.encode(), encode_record(record))

    def discard_group(self, group_key: str) -> None:
        """Delete a group, its members and what was returned to it."""
        owner = group_key.encode()
        self.transaction.put(GROUPS, rows.NOBODY, owner, None)
        self.transaction.drop(MEMBERS, owner)
        self.transaction.drop(RETURNED, owner)

    def put_group_member(self, group_key: str, client_id: str) -> None:
        """Record a member."""
        self.transaction.put(MEMBERS, group_key.encode(), client_id.encode(), b"")

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        """Record that a session is no member any more."""
        self.transaction.put(MEMBERS, group_key.encode(), client_id.encode(), None)

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        """Return a message to a group."""
        key = rows.number(entry.offset)
        self.transaction.put(RETURNED, group_key.encode(), key, encode_entry(entry))

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        """Take a returned message out of a group."""
        self.transaction.put(RETURNED, group_key.encode(), rows.number(offset), None)

    # -- retained --------------------------------------------------------------------------

    def put_retained(self, message: Message) -> None:
        """Retain a message."""
        key = retained_key(message.topic)
        value = encode_retained(message)
        self.load_retained(key, len(key) + len(value))
        self.transaction.put(RETAINED, rows.NOBODY, key, value)

    def load_retained(self, key: bytes, size: int) -> None:
        """A topic has a message that counts so many bytes."""
        self.retained_bytes += size - self.retained.get(key, 0)
        self.retained[key] = size

    def delete_retained(self, topic: str) -> None:
        """Clear a topic."""
        key = retained_key(topic)
        self.retained_bytes -= self.retained.pop(key, 0)
        self.transaction.put(RETAINED, rows.NOBODY, key, None)
