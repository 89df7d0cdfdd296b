"""Turns the operations of a batch into rows, at the moment of the write.

Most are a row each. Some mean something else for each state of the store: replacing a session's
record moves its entry in the deadline index, trimming an inbox deletes what is in it. They are
worked out against the stored rows and the rows of the same batch before them.

Inboxes are trimmed row by row. A range deletion would be one row, but each one slows every later
read until it is compacted away, and a busy shared subscription trims thousands of times a second.
The search for rows begins where the last trim of the session ended, for the same reason.

Invariant: the result has rows only, in an order that gives what the calls meant.
"""

from __future__ import annotations

from typing import Final, final

from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.model.subscription import filter_of
from perdure.storage.codec import encode_cursor, encode_entry, encode_record, encode_retained
from perdure.storage.entry_run import can_be_run, encode_entries
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import INBOX, RETAINED, STATE, Engine, Operations, prefix_end
from perdure.storage.rocksdb.owners import Owners

FLOORS_MAX: Final = 131_072


@final
class InboxFloors:
    """Offsets up to which inboxes are known to be empty; bounded, and safe to forget.

    Args:
        floors_max: inboxes that are remembered.
    """

    __slots__ = ("_floors", "_floors_max")

    def __init__(self, *, floors_max: int = FLOORS_MAX) -> None:
        self._floors: dict[str, int] = {}
        self._floors_max = floors_max

    def get(self, client_id: str) -> int:
        """Nothing is stored up to this offset; -1 = not known."""
        return self._floors.get(client_id, -1)

    def raise_to(self, client_id: str, offset: int) -> None:
        """Everything up to an offset was deleted."""
        if len(self._floors) >= self._floors_max:
            self._floors.clear()
        self._floors[client_id] = max(offset, self.get(client_id))

    def put(self, client_id: str, low: int) -> None:
        """Entries from an offset on were stored."""
        if self._floors.get(client_id, -1) >= low:
            del self._floors[client_id]

    def clear(self) -> None:
        """Know nothing."""
        self._floors.clear()


@final
class Expansion:
    """The rows of one batch (``storage.target.Target``).

    Attributes:
        rows: table, key, value (None = delete), table, ...
        sessions_delta, retained_delta, retained_bytes_delta: how the counts change.
        epochs: of the owners that were named; None = discarded.
        deadlines: of the sessions whose records were put, 0 = none; -1 = discarded.
        deadline_low: the lowest deadline put; 0 = none.
        trimmed: offset up to which each inbox was trimmed last.
        inbox_low: lowest offset put into the inbox of each session.
    """

    def __init__(self, engine: Engine, floors: InboxFloors, owners: Owners) -> None:
        self._engine = engine
        self._floors = floors
        self._owners = owners
        self._retained: dict[bytes, int] = {}
        """What the messages of the topics of this batch count, bytes; 0 = there is none."""
        # Rows of this batch up to where somebody had to know them, and for those that belong to an
        # owner, their keys by owner.
        self._known = 0
        self._batch: dict[tuple[str, bytes], bytes | None] = {}
        self._owned: dict[tuple[str, bytes], set[bytes]] = {}
        self.rows: Operations = []
        self.sessions_delta = 0
        self.retained_delta = 0
        self.retained_bytes_delta = 0
        self.deadline_low = 0
        self.epochs: dict[str, int | None] = {}
        self.deadlines: dict[str, int] = {}
        self.trimmed: dict[str, int] = {}
        self.inbox_low: dict[str, int] = {}

    # -- sessions --------------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        client_id = record.client_id
        old_deadline = self._deadline_us(client_id)
        if old_deadline < 0:
            self.sessions_delta += 1
        self.rows += (STATE, keys.session(client_id), encode_record(record))
        deadline = record.deadline_us
        if old_deadline > 0 and old_deadline != deadline:
            self.rows += (STATE, keys.deadline(old_deadline, client_id), None)
        if deadline:
            self.rows += (STATE, keys.deadline(deadline, client_id), b"")
            self.deadline_low = min(deadline, self.deadline_low or deadline)
        self.deadlines[client_id] = deadline
        self.epochs[client_id] = record.epoch

    def discard_session(self, client_id: str) -> None:
        old_deadline = self._deadline_us(client_id)
        if old_deadline >= 0:
            self.sessions_delta -= 1
            if old_deadline:
                self.rows += (STATE, keys.deadline(old_deadline, client_id), None)
            self.rows += (STATE, keys.session(client_id), None)
        self.deadlines[client_id] = -1
        self.epochs[client_id] = None
        rows = keys.session_rows(client_id)
        for key in self._delete_owned(STATE, rows):
            if key[len(rows) : len(rows) + 1] == b"u":
                since_offset, name = keys.parse_subscription(rows, key)
                index_key = keys.subscriber(filter_of(name), client_id, name, since_offset)
                self.rows += (STATE, index_key, None)
        self._delete_owned(INBOX, keys.session_inbox(client_id))

    def put_cursor(self, client_id: str, cursor: Cursor) -> None:
        key = keys.cursor(keys.session_rows(client_id))
        self.rows += (STATE, key, encode_cursor(cursor))

    def put_subscription(self, client_id: str, sub: Subscription) -> None:
        key = keys.subscription(keys.session_rows(client_id), sub.since_offset, sub.name)
        self.rows += (STATE, key, encode_record(sub))
        value = None if sub.until_offset else b""
        self.rows += (STATE, keys.subscriber_of(client_id, sub), value)

    def delete_subscription(self, client_id: str, sub: Subscription) -> None:
        key = keys.subscription(keys.session_rows(client_id), sub.since_offset, sub.name)
        self.rows += (STATE, key, None)
        self.rows += (STATE, keys.subscriber_of(client_id, sub), None)

    def put_awaiting_release(self, client_id: str, packet_id: int) -> None:
        key = keys.awaiting_release(keys.session_rows(client_id), packet_id)
        self.rows += (STATE, key, b"")

    def delete_awaiting_release(self, client_id: str, packet_id: int) -> None:
        key = keys.awaiting_release(keys.session_rows(client_id), packet_id)
        self.rows += (STATE, key, None)

    def put_inbox(self, client_id: str, entry: InboxEntry) -> None:
        low = self.inbox_low.get(client_id)
        if low is None or entry.offset < low:
            self.inbox_low[client_id] = entry.offset
        key = keys.offset(keys.session_inbox(client_id), entry.offset)
        if entry.message is None:
            key += keys.TOMBSTONE
        self.rows += (INBOX, key, encode_entry(entry))

    def put_inbox_run(self, client_id: str, entries: list[InboxEntry]) -> None:
        if not can_be_run(entries):
            for entry in entries:
                self.put_inbox(client_id, entry)
            return
        low = self.inbox_low.get(client_id)
        if low is None or entries[0].offset < low:
            self.inbox_low[client_id] = entries[0].offset
        key = keys.offset(keys.session_inbox(client_id), entries[-1].offset)
        self.rows += (INBOX, key, encode_entries(entries))

    def trim_inbox(self, client_id: str, through_offset: int) -> None:
        prefix = keys.session_inbox(client_id)
        first = keys.offset(prefix, self._floors.get(client_id) + 1)
        self._delete_owned(INBOX, prefix, first, keys.offset(prefix, through_offset + 1))
        self.trimmed[client_id] = max(through_offset, self.trimmed.get(client_id, 0))

    # -- groups ----------------------------------------------------------------------------

    def put_group(self, record: GroupRecord) -> None:
        self.rows += (STATE, keys.group(record.key), encode_record(record))

    def discard_group(self, group_key: str) -> None:
        self._delete_owned(STATE, keys.group(group_key))
        self._delete_owned(STATE, keys.group_members(group_key))
        self._delete_owned(INBOX, keys.group_inbox(group_key))

    def put_group_member(self, group_key: str, client_id: str) -> None:
        self.rows += (STATE, keys.group_members(group_key) + client_id.encode(), b"")

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        self.rows += (STATE, keys.group_members(group_key) + client_id.encode(), None)

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        key = keys.offset(keys.group_inbox(group_key), entry.offset)
        self.rows += (INBOX, key, encode_entry(entry))

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        self.rows += (INBOX, keys.offset(keys.group_inbox(group_key), offset), None)

    def put_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        if not can_be_run(entries):
            for entry in entries:
                self.put_group_entry(group_key, entry)
            return
        key = keys.offset(keys.group_inbox(group_key), entries[-1].offset)
        self.rows += (INBOX, key, encode_entries(entries))

    def delete_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        if can_be_run(entries):
            entries = entries[-1:]
        for entry in entries:
            self.delete_group_entry(group_key, entry.offset)

    # -- retained --------------------------------------------------------------------------

    def put_retained(self, message: Message) -> None:
        key, value = retained_key(message.topic), encode_retained(message)
        old, new = self._retained_size(key), len(key) + len(value)
        if not old:
            self.retained_delta += 1
        self.retained_bytes_delta += new - old
        self._retained[key] = new
        self.rows += (RETAINED, key, value)

    def delete_retained(self, topic: str) -> None:
        key = retained_key(topic)
        old = self._retained_size(key)
        if old:
            self.retained_delta -= 1
            self.retained_bytes_delta -= old
            self.rows += (RETAINED, key, None)
        self._retained[key] = 0

    # -- what the rows are worked out with --------------------------------------------------

    def _know_rows(self) -> None:
        """Look at the rows that have been added since the last time."""
        rows = self.rows
        for at in range(self._known, len(rows), 3):
            table, key = rows[at], rows[at + 1]
            self._batch[table, key] = rows[at + 2]
            if table == INBOX or (table == STATE and key[:1] in b"xgm"):
                self._owned.setdefault((table, keys.owner_of(key)), set()).add(key)
        self._known = len(rows)

    def _delete_owned(
        self, table: str, prefix: bytes, first: bytes = b"", end: bytes | None = None
    ) -> list[bytes]:
        """Delete an owner's rows from ``first`` to before ``end``, stored ones and new ones.

        Returns:
            Their keys.
        """
        self._know_rows()
        end = end or prefix_end(prefix)
        found = set(self._engine.keys(table, max(first, prefix), end))
        found |= {key for key in self._owned.get((table, prefix), ()) if key < end}
        deleted: list[bytes] = []
        for key in sorted(found):
            if (table, key) not in self._batch or self._batch[table, key] is not None:
                self.rows += (table, key, None)
                deleted.append(key)
        return deleted

    def _deadline_us(self, client_id: str) -> int:
        """As the batch has left it so far."""
        known = self.deadlines.get(client_id)
        return self._owners.deadline_us(client_id) if known is None else known

    def _retained_size(self, key: bytes) -> int:
        """As the batch has left it so far."""
        known = self._retained.get(key)
        if known is not None:
            return known
        value = self._engine.get(RETAINED, key)
        return 0 if value is None else len(key) + len(value)
