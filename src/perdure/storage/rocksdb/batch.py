"""A batch: what will be written together, as operations on rows.

Most calls become rows at once. Messages become rows at the write, when it is seen which of them
make one row (``storage.bundle``). What depends on what is stored when the batch is written (a
session's old deadline, how far an inbox reaches) becomes a mark, which ``expand`` turns into rows
at the write.

The order of a call's cost: ``append`` and ``put_cursor`` run for each message and for each dirty
session of a commit.

Invariant: nothing here touches the database but to allocate offsets and to look up owners.
"""

from __future__ import annotations

from typing import Final, final

from perdure.errors import Fenced, UsageError
from perdure.model import (
    Cursor,
    GroupRecord,
    InboxEntry,
    Message,
    SessionRecord,
    Subscription,
)
from perdure.storage.codec import (
    encode_cursor,
    encode_entry,
    encode_record,
    encode_retained,
)
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import INBOX, STATE, Operations
from perdure.storage.rocksdb.marks import Offsets
from perdure.storage.rocksdb.owners import Owners

PUT_SESSION: Final = "!put_session"
DISCARD_SESSION: Final = "!discard_session"
TRIM_INBOX: Final = "!trim_inbox"
DISCARD_GROUP: Final = "!discard_group"
PUT_RETAINED: Final = "!put_retained"
DELETE_RETAINED: Final = "!delete_retained"


@final
class RocksBatch:
    """Writes that are applied together; see ``storage.contract.Batch``.

    Attributes:
        operations: rows and marks of all but messages, flat, in the order of the calls.
        has_marks: some operation must be expanded.
        messages: to record; those of later generations have later offsets.
        inbox_low: lowest offset put into the inbox of each session.
        staged: owners as the batch leaves them; None = discarded.
    """

    __slots__ = (
        "_expects",
        "_offsets",
        "_owner_changes",
        "_owners",
        "_replaces",
        "has_marks",
        "inbox_low",
        "messages",
        "operations",
        "staged",
    )

    def __init__(self, offsets: Offsets, owners: Owners) -> None:
        self._offsets = offsets
        self._owners = owners
        # What must still hold at the write: the session is there and its owner is not later
        # than this; or, for a record, only the latter.
        self._expects: dict[str, int] = {}
        self._replaces: dict[str, int] = {}
        self._owner_changes = owners.changes
        self.operations: Operations = []
        self.has_marks = False
        self.messages: list[Message] = []
        self.inbox_low: dict[str, int] = {}
        self.staged: dict[str, int | None] = {}

    # -- the log ---------------------------------------------------------------------------

    def append(self, message: Message, now_us: int) -> int:
        offsets = self._offsets
        offset = offsets.last + 1
        if now_us > offset:
            offset = now_us
        offsets.last = offset
        message.offset = offset
        self.messages.append(message)
        return offset

    def extend(self, messages: list[Message], now_us: int) -> None:
        if not messages:
            return
        offset = max(self._offsets.last + 1, now_us)
        for message in messages:
            message.offset = offset
            offset += 1
        self._offsets.last = offset - 1
        self.messages += messages

    # -- sessions --------------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        client_id = record.client_id
        owner = self._owner_epoch(client_id)
        if owner is not None and record.epoch < owner:
            raise Fenced(f"session {client_id!r}: epoch {record.epoch} after {owner}")
        if client_id not in self.staged:
            self._replaces[client_id] = record.epoch
        self.staged[client_id] = record.epoch
        self._mark(PUT_SESSION, record)

    def discard_session(self, client_id: str) -> None:
        self.staged[client_id] = None
        self._mark(DISCARD_SESSION, client_id)

    def put_cursor(self, client_id: str, cursor: Cursor, *, epoch: int) -> None:
        self._check(client_id, epoch)
        key = keys.cursor(keys.session_rows(client_id))
        self.operations += (STATE, key, encode_cursor(cursor))

    def put_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        self._check(client_id, epoch)
        key = keys.subscription(keys.session_rows(client_id), sub.since_offset, sub.name)
        self.operations += (STATE, key, encode_record(sub))

    def delete_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        self._check(client_id, epoch)
        key = keys.subscription(keys.session_rows(client_id), sub.since_offset, sub.name)
        self.operations += (STATE, key, None)

    def put_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        self._check(client_id, epoch)
        key = keys.awaiting_release(keys.session_rows(client_id), packet_id)
        self.operations += (STATE, key, b"")

    def delete_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        self._check(client_id, epoch)
        key = keys.awaiting_release(keys.session_rows(client_id), packet_id)
        self.operations += (STATE, key, None)

    def put_inbox(self, client_id: str, entry: InboxEntry, *, epoch: int) -> None:
        self._check(client_id, epoch)
        low = self.inbox_low.get(client_id)
        if low is None or entry.offset < low:
            self.inbox_low[client_id] = entry.offset
        key = keys.offset(keys.session_inbox(client_id), entry.offset)
        self.operations += (INBOX, key, encode_entry(entry))

    def trim_inbox(self, client_id: str, through_offset: int, *, epoch: int) -> None:
        self._check(client_id, epoch)
        self._mark(TRIM_INBOX, client_id, through_offset)

    # -- groups ----------------------------------------------------------------------------

    def put_group(self, record: GroupRecord) -> None:
        self.operations += (STATE, keys.group(record.key), encode_record(record))

    def discard_group(self, group_key: str) -> None:
        self._mark(DISCARD_GROUP, group_key)

    def put_group_member(self, group_key: str, client_id: str) -> None:
        self.operations += (STATE, keys.group_members(group_key) + client_id.encode(), b"")

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        self.operations += (STATE, keys.group_members(group_key) + client_id.encode(), None)

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        key = keys.offset(keys.group_inbox(group_key), entry.offset)
        self.operations += (INBOX, key, encode_entry(entry))

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        self.operations += (INBOX, keys.offset(keys.group_inbox(group_key), offset), None)

    # -- retained --------------------------------------------------------------------------

    def put_retained(self, message: Message) -> None:
        if not message.offset:
            raise UsageError("a retained message needs an offset")
        self._mark(PUT_RETAINED, retained_key(message.topic), encode_retained(message))

    def delete_retained(self, topic: str) -> None:
        self._mark(DELETE_RETAINED, retained_key(topic))

    # -- the write -------------------------------------------------------------------------

    def names_session(self, client_id: str) -> bool:
        return client_id in self.staged or client_id in self._expects

    def is_empty(self) -> bool:
        return not self.operations and not self.messages

    def stale_owner(self) -> str | None:
        """A session of this batch that got a later owner, or went, since it was staged."""
        owners = self._owners
        if owners.changes == self._owner_changes:
            return None
        for client_id, epoch in self._expects.items():
            owner = owners.epoch(client_id)
            if owner is None or epoch < owner:
                return client_id
        for client_id, epoch in self._replaces.items():
            owner = owners.epoch(client_id)
            if owner is not None and epoch < owner:
                return client_id
        return None

    def _mark(self, kind: str, first: object, second: object = None) -> None:
        self.operations += (kind, first, second)
        self.has_marks = True

    def _owner_epoch(self, client_id: str) -> int | None:
        if client_id in self.staged:
            return self.staged[client_id]
        return self._owners.epoch(client_id)

    def _check(self, client_id: str, epoch: int) -> None:
        if self.staged and client_id in self.staged:
            _refuse_stale(client_id, epoch, self.staged[client_id])
            return
        expected = self._expects.get(client_id)
        if (
            expected is not None
            and expected == epoch
            and self._owners.changes == self._owner_changes
        ):
            return  # found good before
        _refuse_stale(client_id, epoch, self._owners.epoch(client_id))
        if expected is None or epoch < expected:
            self._expects[client_id] = epoch


def _refuse_stale(client_id: str, epoch: int, owner: int | None) -> None:
    if owner is None:
        raise Fenced(f"session {client_id!r} does not exist")
    if epoch < owner:
        raise Fenced(f"session {client_id!r}: epoch {epoch} after {owner}")
