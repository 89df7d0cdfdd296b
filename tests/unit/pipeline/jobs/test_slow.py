"""Sessions that are behind, by what waits for them."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.model import Cursor, InboxEntry, SessionRecord, Subscription
from perdure.pipeline.jobs.slow import slow_sessions
from perdure.storage.rocksdb import RocksDatabase
from tests.support.staged import Staged, take_offset
from tests.unit.pipeline.logs import SECOND, START, append


def session(
    database: RocksDatabase,
    client_id: str,
    cursor: Cursor,
    *subscriptions: Subscription,
    entries: tuple[InboxEntry, ...] = (),
) -> None:
    batch = Staged(database)
    record = SessionRecord(client_id, 1, START, 3_600, connected=True, changed_at_us=START)
    batch.put_session(record)
    batch.put_cursor(client_id, cursor, epoch=1)
    for subscription in subscriptions:
        batch.put_subscription(client_id, subscription, epoch=1)
    for entry in entries:
        batch.put_inbox(client_id, entry, epoch=1)
    batch.write()


async def test_sessions_with_most_pending_come_first(database: RocksDatabase) -> None:
    written = append(database, ["a", "b"] * 50, at=START, step=SECOND)
    last = written[-1].offset
    a, b = (Subscription(name, qos=1) for name in "ab")
    session(database, "done", Cursor(last, 100), a, b)
    session(database, "none", Cursor())
    session(database, "behind", Cursor(START + 9 * SECOND, 10, (13,), (), 15), a, b)
    late = Subscription("a", qos=1, since_offset=START + 90 * SECOND)
    session(database, "late", Cursor(), late)
    given_up = Subscription("b", qos=1, until_offset=START + SECOND)
    session(database, "shared", Cursor(), given_up, Subscription("a", group="g", qos=1))
    session(database, "quick", Cursor(), Subscription("a", qos=0))
    entry = InboxEntry(take_offset(database, last + SECOND), written[3], qos=1)
    session(database, "owed", Cursor(last, 100), a, entries=(entry,))
    rows = await slow_sessions(database, top=10)
    assert [(row["client_id"], row["pending"], row["unacknowledged"]) for row in rows] == [
        ("behind", 89, 4),
        ("late", 4, 0),
        ("owed", 1, 0),
        ("shared", 1, 0),
    ]
    oldest = datetime.fromtimestamp(START // SECOND + 10, UTC)
    assert (rows[0]["oldest"], rows[0]["connected"]) == (oldest, True)
    assert rows[0]["behind_s"] == (database.last_offset - START) / 1e6 - 10
    assert [row["client_id"] for row in await slow_sessions(database, top=1)] == ["behind"]


async def test_many_sessions_are_held_in_little_memory(database: RocksDatabase) -> None:
    append(database, ["a"] * 3_000, at=START)
    for number in range(1_020):
        session(database, f"s{number}", Cursor(), Subscription("a", qos=1))
    assert len(await slow_sessions(database, top=2)) == 2
