"""The enumeration of pending messages against a naive one, however the rows are cut into pages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from perdure.model import BackfillProgress, Cursor, InboxEntry, Message, SessionRecord, Subscription
from perdure.model.session_record import StoredSession
from perdure.session.pending import PendingMessage, PendingMessages
from perdure.session.pending_pages import StoredQueue, count_pending, oldest_pending
from perdure.session.subscriptions import SessionSubscriptions
from perdure.storage.contract import Counted, ReadResult
from perdure.topic.matching import matches

Seen: TypeAlias = tuple[int, int, int, bool, tuple[int, ...], bool]
"""Offset, serial number, QoS, RETAIN, identifiers, from the private stream."""

CLIENT = "c"
LAST = 12

ALL_QOS_1 = [Subscription("a", qos=1), Subscription("#", qos=1, retain_as_published=True)]

SUBSCRIPTIONS = st.lists(
    st.builds(
        Subscription,
        st.sampled_from(["a", "#", "a/#"]),
        group=st.sampled_from(["", "", "", "g"]),
        qos=st.sampled_from([0, 1, 1, 2]),
        no_local=st.booleans(),
        retain_as_published=st.booleans(),
        identifier=st.integers(0, 2),
        since_offset=st.sampled_from([0, 0, 4, 8]),
        until_offset=st.sampled_from([0, 0, 0, 6]),
        backfill=st.sampled_from([None, None, None, BackfillProgress(False, "", 0, 0)]),
        where=st.sampled_from(["", "", "", '{"$payload":1}', '{"$payload":{"$ne":1}}']),
    ),
    min_size=1,
    max_size=4,
)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["a", "a", "a", "a/b", "$x"]),
        st.sampled_from([b"", b"1", b"2"]),
        qos=st.sampled_from([0, 1, 1, 1, 2]),
        retain=st.sampled_from([False, False, True]),
        publisher=st.sampled_from([CLIENT, "other"]),
        expires_at_us=st.sampled_from([0, 0, 0, 0, 5]),
        offset=st.integers(1, LAST),
    ),
    min_size=6,
    max_size=LAST,
    unique_by=lambda message: message.offset,
).map(lambda messages: sorted(messages, key=lambda message: message.offset))
ENTRIES = st.lists(
    st.builds(
        InboxEntry,
        st.integers(1, LAST),
        st.sampled_from([None, Message("inbox", b"", 1), Message("inbox", b"", 2)]),
        qos=st.integers(1, 2),
        serial=st.sampled_from([0, 0, 0, 6, 20]),
    ),
    max_size=4,
    unique_by=lambda entry: entry.offset,
).map(lambda entries: sorted(entries, key=lambda entry: entry.offset))


def naive(
    subs: Sequence[Subscription],
    messages: Sequence[Message],
    entries: Sequence[InboxEntry],
    serial: int,
) -> list[Seen]:
    """Each offset in turn, each subscription asked; nothing remembered."""
    of_log = {message.offset: message for message in messages}
    of_inbox = {entry.offset: entry for entry in entries}
    found: list[Seen] = []
    for offset in range(1, LAST + 1):
        if (entry := of_inbox.get(offset)) is not None:
            serial = max(serial + 1, entry.serial)
            found.append((offset, serial, entry.qos, entry.retain, entry.identifiers, True))
        elif (message := of_log.get(offset)) is not None:
            mine = [
                sub
                for sub in subs
                if not sub.group
                and sub.backfill is None
                and sub.since_offset < offset <= (sub.until_offset or LAST)
                and matches(sub.filter, message.topic)
                and not (sub.no_local and message.publisher == CLIENT)
                and (not sub.where or ("ne" in sub.where) is (message.payload != b"1"))
            ]
            qos = max((min(sub.qos, message.qos) for sub in mine), default=0)
            if qos:
                serial += 1
                retain = message.retain and any(sub.retain_as_published for sub in mine)
                identifiers = tuple(sorted(sub.identifier for sub in mine if sub.identifier))
                found.append((offset, serial, qos, retain, identifiers, False))
    return found


def seen(pending: PendingMessage) -> Seen:
    return (
        pending.offset,
        pending.serial,
        pending.qos,
        pending.retain,
        pending.identifiers,
        pending.entry is not None,
    )


@given(SUBSCRIPTIONS, MESSAGES, ENTRIES, st.sets(st.integers(1, LAST)), st.integers(0, 3))
def test_pages_do_not_matter(
    subs: list[Subscription],
    messages: list[Message],
    entries: list[InboxEntry],
    ends: set[int],
    serial: int,
) -> None:
    pending = PendingMessages(SessionSubscriptions(CLIENT, subs), serial)
    found: list[Seen] = []
    after = 0
    for end in sorted(ends | {LAST}):
        page = pending.page(
            [message for message in messages if after < message.offset <= end],
            [entry for entry in entries if after < entry.offset <= end],
        )
        found += [seen(each) for each in page]
        after = end
    assert found == naive(subs, messages, entries, serial)
    assert pending.serial == (found[-1][1] if found else serial)


@given(st.just(ALL_QOS_1) | SUBSCRIPTIONS, MESSAGES, ENTRIES, st.randoms(use_true_random=False))
def test_runs_do_not_matter(
    subs: list[Subscription],
    messages: list[Message],
    entries: list[InboxEntry],
    chance: random.Random,
) -> None:
    """Runs as a connection takes them: of any length, of which any part may come again."""
    pending = PendingMessages(SessionSubscriptions(CLIENT, subs), 0)
    expected = naive(subs, messages, entries, 0)
    found: list[Seen] = []
    for first in pending.page(messages, entries):
        message = first.message
        found.append(seen(first))
        if message is None or message.expires_at_us or first.qos != 1 or first.retain:
            continue
        if first.entry is not None:
            continue
        run = pending.run(chance.randint(1, 5))
        taken = chance.randint(1, len(run))
        pending.give_back(len(run) - taken)
        for number, following in enumerate(run[1:taken], 1):
            assert not following.expires_at_us
            found.append(
                (following.offset, first.serial + number, 1, False, first.identifiers, False)
            )
    assert found == expected


def carried(messages: list[Message], entries: list[InboxEntry]) -> list[InboxEntry]:
    """Entries as retention leaves them: what has the offset of a message is that message."""
    of_log = {message.offset: message for message in messages}
    return [
        InboxEntry(
            entry.offset,
            entry.message and of_log.get(entry.offset, entry.message),
            qos=entry.qos,
            serial=entry.serial,
        )
        for entry in entries
    ]


class ListedRows:
    """Rows in lists; a read gives all that matches, whether it is owed or not."""

    def __init__(self, messages: list[Message], entries: list[InboxEntry], chunk: int) -> None:
        self._messages = messages
        self._entries = entries
        self._chunk = chunk

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """As a database whose pages end early."""
        assert filters
        limit = min(limit, self._chunk)
        found = [
            message
            for message in self._messages
            if after_offset < message.offset <= until_offset
            and any(matches(each, message.topic) for each in filters)
        ][:limit]
        return ReadResult(found, found[-1].offset if len(found) == limit else until_offset)

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """Entries of the one session."""
        assert client_id == CLIENT
        return [e for e in self._entries if after_offset < e.offset <= until_offset][:limit]

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        """What matches, a page that ends early too."""
        page = await self.read(
            filters, after_offset=after_offset, until_offset=until_offset, limit=limit
        )
        matching = sum(1 for message in page.messages if message.qos)
        return Counted(matching, page.through_offset)


@given(
    SUBSCRIPTIONS,
    MESSAGES,
    ENTRIES,
    st.integers(0, LAST),
    st.sets(st.integers(1, 8)),
    st.integers(1, 4),
)
@example(
    # It ended before it began: what begins after it is counted by no filter.
    [Subscription("a", qos=1, since_offset=8, until_offset=6)],
    [Message("a", b"", qos=1, offset=9)],
    [],
    0,
    set(),
    1,
)
def test_what_is_read_and_counted_of_a_stored_session(
    subs: list[Subscription],
    messages: list[Message],
    entries: list[InboxEntry],
    after: int,
    settled: set[int],
    chunk: int,
) -> None:
    # The log records QoS 1 and 2, as the broker does by default; a count goes by that.
    messages = [message for message in messages if message.qos]
    entries = carried(messages, entries)
    rows = ListedRows(messages, entries, chunk)
    messages = [message for message in messages if message.offset > after]
    entries = [entry for entry in entries if entry.offset > after]
    serial = 3
    expected = naive(subs, messages, entries, serial)
    numbers = {each[1] for each in expected}
    done = tuple(sorted(numbers & {serial + number for number in settled if number > 1}))
    stored = StoredSession(
        SessionRecord(CLIENT, 1, 0, 0, connected=False, changed_at_us=0),
        Cursor(after, serial, done),
        tuple(subs),
        (),
    )
    tombstones = {entry.offset for entry in entries if entry.message is None}
    owed = [e for e in expected if e[1] not in done and not (e[5] and e[0] in tombstones)]

    async def look() -> None:
        queue = StoredQueue(rows, stored, until=LAST, chunk=chunk)
        listed = [each async for each in queue.messages()]
        assert [seen(each) for each in listed] == expected
        assert queue.last_serial == (expected[-1][1] if expected else serial)
        oldest = await oldest_pending(rows, stored, until=LAST)
        assert (None if oldest is None else oldest.offset) == (owed[0][0] if owed else None)
        count, exact = await count_pending(rows, stored, until=LAST, limit=1_000)
        if exact:
            assert count == len(owed)

    asyncio.run(look())
