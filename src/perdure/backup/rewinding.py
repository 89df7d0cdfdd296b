"""Takes a restored database back to an earlier offset, as far as that can be known.

The log says what was published, so it can be cut anywhere. State was overwritten as time went on,
and what it had been is gone:

======================  ==========================================================================
log                     exact: what is later is cut
subscriptions           those made later go; those that ended later hold again, if the session had
                        not read beyond their end
sessions                those made later go; those that were discarded or expired later are lost
cursors                 stay: what a client acknowledged later does not come again
private streams         what was given later goes; what was acknowledged later does not come again
shared groups           those made later go; what was given stays given
retained messages       those set later go; the one before is found in the log, if it was recorded
                        (QoS 1 and 2) and is still in it; else none is retained
wills, users, bans      as they were when the backup was made
======================  ==========================================================================

Offsets that were given later are never given again: the database's last offset stays.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

import msgspec

from perdure.model import Cursor, InboxEntry, Message, StoredSession
from perdure.session.pending_pages import StoredQueue
from perdure.storage.batch import Batch
from perdure.storage.codec import decode_retained
from perdure.storage.retained_walk import retained_topic
from perdure.storage.rocksdb.cutting import cut_entries, cut_log
from perdure.storage.rocksdb.engine import ALL_END, RETAINED
from perdure.storage.rocksdb.store import RocksDatabase

_PAGE: Final = 1_000
TOPICS_NAMED_MAX: Final = 20
"""Topics whose retained message is not known any more that are named, not only counted."""


class Rewound(msgspec.Struct, frozen=True):
    """What was changed.

    Attributes:
        messages: cut off the log.
        sessions, groups: that were made later, and are gone.
        subscriptions: that were made later, and are gone.
        revived: subscriptions that had ended later, and hold again.
        entries: of private streams that were given later, and are gone.
        retained: messages retained later; the next two say what became of their topics.
        retained_found: topics whose message of that time was in the log.
        retained_unknown: topics whose message of that time, if there was one, is not known.
        unknown_topics: the first of those.
    """

    messages: int = 0
    sessions: int = 0
    groups: int = 0
    subscriptions: int = 0
    revived: int = 0
    entries: int = 0
    retained: int = 0
    retained_found: int = 0
    retained_unknown: int = 0
    unknown_topics: tuple[str, ...] = ()


NOTHING_CUT: Final = Rewound()


def rewind(database: RocksDatabase, at: int) -> Rewound:
    """Take a database back.

    Args:
        database: open for writing, and to be closed after this: its rows change underneath it.
        at: offset; what is later goes.

    Raises:
        UsageError: its log cannot be cut.
    """
    return asyncio.run(_rewind(database, at))


async def _rewind(database: RocksDatabase, at: int) -> Rewound:
    sessions = subscriptions = revived = 0
    records = [record async for record in database.sessions()]
    for record in records:
        stored = await database.open_session(record.client_id)
        assert stored is not None
        batch = Batch()
        if record.created_at_us > at:
            batch.discard_session(record.client_id)
            sessions += 1
        else:
            cut, back = await _rewind_session(batch, database, stored, at)
            subscriptions += cut
            revived += back
        database.submit(batch, 0)
    groups = await _rewind_groups(database, at)
    retained, found, unknown = await _rewind_retained(database, at)
    engine, generations = database.tables()
    entries = cut_entries(engine, lambda entry: _stays(entry, at))
    messages = cut_log(engine, generations, at)
    database.sync()
    return Rewound(
        messages=messages,
        sessions=sessions,
        groups=groups,
        subscriptions=subscriptions,
        revived=revived,
        entries=entries,
        retained=retained,
        retained_found=found,
        retained_unknown=len(unknown),
        unknown_topics=tuple(unknown[:TOPICS_NAMED_MAX]),
    )


def _stays(entry: InboxEntry, at: int) -> bool:
    """Whether an entry of a private stream is of that time: a share may be given later than its
    message came, and what was given is not in the group any more."""
    if entry.offset <= at:
        return True
    message = entry.message
    return bool(entry.group_key) and message is not None and 0 < message.offset <= at


async def _rewind_session(
    batch: Batch, database: RocksDatabase, stored: StoredSession, at: int
) -> tuple[int, int]:
    """Returns how many subscriptions went, and how many hold again."""
    record = stored.record
    cut = back = held = 0
    for sub in stored.subscriptions:
        if sub.since_offset > at:
            batch.delete_subscription(record.client_id, sub, epoch=record.epoch)
            if sub.group:
                batch.delete_group_member(f"{sub.group}/{sub.filter}", record.client_id)
            cut += 1
            continue
        if sub.until_offset > at:
            again = msgspec.structs.replace(sub, until_offset=0)
            batch.put_subscription(record.client_id, again, epoch=record.epoch)
            back += 1
        held += not 0 < sub.until_offset <= at
    batch.put_session(msgspec.structs.replace(record, subscription_count=held))
    cursor = await _cursor_at(database, stored, at)
    batch.put_cursor(record.client_id, cursor, epoch=record.epoch)
    return cut, back


async def _cursor_at(database: RocksDatabase, stored: StoredSession, at: int) -> Cursor:
    """The cursor, when what is later is not there any more: who came behind it moves up, and takes
    an earlier serial number."""
    cursor = stored.cursor
    if not (cursor.settled or cursor.released or cursor.sent > cursor.serial):
        return cursor
    settled: list[int] = []
    released: list[int] = []
    sent = serial = cursor.serial
    queue = StoredQueue(database, stored, until=database.last_offset)
    async with aclosing(queue.messages()) as messages:
        async for pending in messages:
            entry = pending.entry
            if not (pending.offset <= at if entry is None else _stays(entry, at)):
                continue
            serial = max(serial + 1, entry.serial if entry is not None else 0)
            if pending.serial in cursor.settled:
                settled.append(serial)
            if pending.serial in cursor.released:
                released.append(serial)
            if pending.serial <= cursor.sent:
                sent = serial
    return Cursor(cursor.offset, cursor.serial, tuple(settled), tuple(released), sent)


async def _rewind_groups(database: RocksDatabase, at: int) -> int:
    batch = Batch()
    late = [group for group in await database.groups() if group.created_at_us > at]
    for group in late:
        batch.discard_group(group.key)
    database.submit(batch, 0)
    return len(late)


async def _rewind_retained(database: RocksDatabase, at: int) -> tuple[int, int, list[str]]:
    """Returns how many were later, how many of their topics have one again, and which may lack
    one."""
    engine, _ = database.tables()
    late = {
        retained_topic(key)
        for key, value in engine.items(RETAINED, b"", ALL_END)
        if decode_retained(retained_topic(key), value).offset > at
    }
    count = len(late)
    # Where it was cleared later, nothing is there to be seen but the log.
    after = at
    while after < database.last_offset:
        page = await database.read(
            ["#"], after_offset=after, until_offset=database.last_offset, limit=_PAGE
        )
        late |= {message.topic for message in page.messages if message.retain}
        after = page.through_offset
    found = 0
    unknown: list[str] = []
    for topic in sorted(late):
        message = await _last_retained(database, topic, at)
        batch = Batch()
        if message is not None and message.payload:
            batch.put_retained(message)
            found += 1
        else:
            batch.delete_retained(topic)
            if message is None:
                unknown.append(topic)
        database.submit(batch, 0)
    return count, found, unknown


async def _last_retained(database: RocksDatabase, topic: str, at: int) -> Message | None:
    """The last message up to an offset that was to be retained, or cleared it."""
    last = None
    after = 0
    while after < at:
        page = await database.read([topic], after_offset=after, until_offset=at, limit=_PAGE)
        for message in page.messages:
            if message.retain:
                last = message
        after = page.through_offset
    return last
