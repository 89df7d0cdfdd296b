"""Reads sessions, their private streams and shared groups.

Nothing of a session is held in memory: opening one is a lookup and a scan of its rows, which lie
together, and a start does not depend on how many there are.

Invariant: no iterator outlives a call, so the database can be reopened between any two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import Final, final

from perdure.errors import StorageCorrupt
from perdure.limits import OFFSET_MAX
from perdure.model import Cursor, GroupRecord, InboxEntry, SessionRecord, StoredSession
from perdure.storage.codec import (
    decode_cursor,
    decode_group,
    decode_session,
    decode_subscription,
)
from perdure.storage.rocksdb import keys, private_stream
from perdure.storage.rocksdb.engine import INBOX, STATE, Engine, prefix_end
from perdure.storage.rocksdb.owners import Owners
from perdure.storage.subscribers import Subscriber, SubscriberPage, TopicWalk

_PAGE: Final = 64
"""Sessions that are read in one go, some 0.2 ms: whoever lists them lets clients be served in
between, and a page of a list is often that short."""


@final
class SessionReader:
    """The read side of sessions and groups; see ``storage.contract.Database``."""

    def __init__(self, engine: Callable[[], Engine], owners: Owners) -> None:
        self._engine = engine
        self._owners = owners
        # No entry of the deadline index is below this: what was deleted there need not be
        # stepped over each time.
        self._deadline_floor = 0

    def deadline_put(self, deadline_us: int) -> None:
        """A session's deadline was written."""
        self._deadline_floor = min(self._deadline_floor, deadline_us)

    def forget(self) -> None:
        """Know nothing of what is stored."""
        self._deadline_floor = 0

    async def open_session(self, client_id: str) -> StoredSession | None:
        engine = self._engine()
        value = engine.get(STATE, keys.session(client_id))
        if value is None:
            return None
        record = decode_session(value)
        self._owners.seen(record)  # whoever opens a session writes its record next
        cursor, subscriptions, awaiting = Cursor(), [], []
        prefix = keys.session_rows(client_id)
        for key, row in engine.items(STATE, prefix, prefix_end(prefix)):
            kind = key[len(prefix) : len(prefix) + 1]
            if kind == b"c":
                cursor = decode_cursor(row)
            elif kind == b"u":
                subscriptions.append(decode_subscription(row))
            elif kind == b"r":
                awaiting.append(int.from_bytes(key[-2:]))
            else:
                raise StorageCorrupt(f"session {client_id!r} has a row of unknown kind")
        return StoredSession(record, cursor, tuple(subscriptions), tuple(awaiting))

    async def sessions(self, after: str) -> AsyncIterator[SessionRecord]:
        first = _above(after)
        while True:
            page: list[SessionRecord] = []
            for key, value in self._engine().items(STATE, first, b"t"):
                page.append(decode_session(value))
                if len(page) == _PAGE:
                    first = key + b"\0"
                    break
            for record in page:
                yield record
            if len(page) < _PAGE:
                return

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        first = _above(after)
        return [key[1:].decode() for key in islice(self._engine().keys(STATE, first, b"t"), limit)]

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        found = self._engine().get_many(STATE, [keys.session(each) for each in client_ids])
        return [decode_session(value) for value in found if value is not None]

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        kind, end = keys.filters()
        seeker = self._engine().seeker(STATE, end)
        walk = TopicWalk(topic)
        found: list[Subscriber] = []
        first, looked = kind + start, 0
        at: bytes | None = b""
        while at is not None and (step := walk.next()) is not None:
            prefix = kind + step.prefix
            below = prefix_end(prefix)
            # Nothing lies between what was looked for last and what was found.
            if below <= max(first, at):
                continue
            # The way down to where the page begins is not counted: each page goes on.
            looked += not first.startswith(prefix)
            if looked > steps_max:
                return SubscriberPage(found, max(first, prefix)[1:])
            at = seeker.seek(max(prefix, first))
            if step.depth >= 0:
                if at is not None and at.startswith(prefix):
                    walk.enter(step)
                continue
            while at is not None and at.startswith(prefix):
                if len(found) >= limit or looked > steps_max:
                    return SubscriberPage(found, first[1:])
                looked += 1
                found.append(keys.parse_subscriber_row(at)[1])
                first = at + b"\0"
                at = seeker.next()
        return SubscriberPage(found, None)

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        kind, end = keys.filters()
        found: list[Subscriber] = []
        levels, plain = text.replace("/", "\0").encode(), text.encode()
        for looked, key in enumerate(self._engine().keys(STATE, kind + start, end)):
            if len(found) >= limit or looked >= steps_max:
                return SubscriberPage(found, key[1:])
            # Most keys say by themselves that they are not wanted.
            if levels in key or plain in key:
                subscriber = keys.parse_subscriber_row(key)[1]
                if text in subscriber.name:
                    found.append(subscriber)
        return SubscriberPage(found, None)

    async def due_sessions(self, now_us: int, limit: int) -> list[SessionRecord]:
        engine = self._engine()
        due: list[SessionRecord] = []
        first = keys.deadline(self._deadline_floor, "")
        lowest = 0
        for key in engine.keys(STATE, first, keys.deadline(now_us + 1, "")):
            deadline_us, client_id = keys.parse_deadline(key)
            lowest = lowest or deadline_us
            value = engine.get(STATE, keys.session(client_id))
            if value is None:
                raise StorageCorrupt(f"the deadline of session {client_id!r} has no session")
            due.append(decode_session(value))
            if len(due) >= limit:
                break
        self._deadline_floor = lowest or max(self._deadline_floor, now_us + 1)
        return due

    async def next_deadline_us(self) -> int:
        first = keys.deadline(self._deadline_floor, "")
        key = next(self._engine().keys(STATE, first, b"e"), None)
        if key is None:
            return 0
        deadline_us, _ = keys.parse_deadline(key)
        self._deadline_floor = deadline_us
        return deadline_us

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        return self.inbox(client_id, after_offset, until_offset, limit)

    def inbox(
        self, client_id: str, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """Entries of a private stream, after the one offset and up to the other."""
        if limit < 1:
            return []
        prefix = keys.session_inbox(client_id)
        rows = self._engine().items(
            INBOX, keys.offset(prefix, after_offset + 1), prefix_end(prefix)
        )
        return private_stream.entries(
            rows,
            len(prefix),
            after_offset=after_offset,
            until_offset=until_offset,
            limit=limit,
        )

    async def groups(self) -> list[GroupRecord]:
        rows = self._engine().items(STATE, b"g", b"h")
        records = [decode_group(value) for _, value in rows]
        return sorted(records, key=lambda record: record.key.encode())

    async def group_members(self, group_key: str) -> list[str]:
        return self.members_of(group_key)

    def members_of(self, group_key: str) -> list[str]:
        """Client identifiers of a group's members."""
        prefix = keys.group_members(group_key)
        found = self._engine().keys(STATE, prefix, prefix_end(prefix))
        return [key[len(prefix) :].decode() for key in found]

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int
    ) -> list[InboxEntry]:
        if limit < 1:
            return []
        prefix = keys.group_inbox(group_key)
        rows = self._engine().items(
            INBOX, keys.offset(prefix, after_offset + 1), prefix_end(prefix)
        )
        return private_stream.entries(
            rows, len(prefix), after_offset=after_offset, until_offset=OFFSET_MAX, limit=limit
        )


def _above(client_id: str) -> bytes:
    """Where the records of sessions above a client id begin; all of them, if it is empty."""
    return keys.session(client_id) + b"\0" if client_id else b"s"
