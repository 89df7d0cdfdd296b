"""What every backend promises of sessions, private streams and shared groups."""

from __future__ import annotations

import pytest

from perdure.model import BackfillProgress, Cursor, GroupRecord, Subscription, Will
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.subscribers import Subscriber
from perdure.topic.matching import matches
from tests.contract.conftest import Backend
from tests.contract.values import NOW_US, create_session, entry, record, submit, write

FULL_RECORD = record(
    "full",
    epoch=3,
    connected=False,
    will=Will("w/t", b"\x00gone", 2, True, b"\x01\x01", 30, 60),
    will_at_us=NOW_US + 30_000_000,
    expires_at_us=NOW_US + 60_000_000,
    expiry_s=60,
    username="u",
    protocol=5,
    dropped_count=7,
)
CURSOR = Cursor(NOW_US + 5, 70_000, (70_002, 70_005), (70_003,), 70_009)
SUBS = (
    Subscription("a/#", qos=2, no_local=True, identifier=9, since_offset=5, until_offset=17),
    Subscription("a/#", "g", 1, since_offset=5),
    Subscription("a/#", qos=1, since_offset=17, backfill=BackfillProgress(True, "a/x", 20, 17)),
    Subscription("b/+", retain_as_published=True, retain_handling=2, since_offset=17),
)


def put_full_session(database: Database) -> None:
    batch = Batch()
    batch.put_session(FULL_RECORD)
    batch.put_cursor("full", CURSOR, epoch=3)
    for sub in (SUBS[3], SUBS[0], SUBS[2], SUBS[1]):
        batch.put_subscription("full", sub, epoch=3)
    for packet_id in (65_535, 1, 256):
        batch.put_awaiting_release("full", packet_id, epoch=3)
    write(database, batch)


async def test_session_comes_back_whole(backend: Backend) -> None:
    put_full_session(backend.database)
    for database in backend.now_and_restarted():
        stored = await database.open_session("full")
        assert stored is not None
        assert stored.record == FULL_RECORD
        assert stored.cursor == CURSOR
        assert set(stored.subscriptions) == set(SUBS)
        order = [(sub.since_offset, sub.name) for sub in stored.subscriptions]
        assert order == sorted(order)
        assert stored.awaiting_release == (1, 256, 65_535)
        assert await database.open_session("ful") is None
        assert await database.open_session("full2") is None


async def test_new_session_has_an_empty_cursor(database: Database) -> None:
    create_session(database)
    stored = await database.open_session("c1")
    assert stored is not None
    assert (stored.cursor, stored.subscriptions, stored.awaiting_release) == (Cursor(), (), ())


async def test_parts_are_replaced_and_deleted_alone(backend: Backend) -> None:
    put_full_session(backend.database)
    batch = Batch()
    batch.put_cursor("full", Cursor(NOW_US + 6, 70_009), epoch=3)
    batch.delete_subscription("full", SUBS[0], epoch=3)
    batch.delete_subscription("full", Subscription("never"), epoch=3)
    live = Subscription("a/#", qos=0, since_offset=17)
    batch.put_subscription("full", live, epoch=3)
    batch.delete_awaiting_release("full", 256, epoch=3)
    batch.delete_awaiting_release("full", 9, epoch=3)
    write(backend.database, batch)
    stored = await backend.restart().open_session("full")
    assert stored is not None
    assert stored.record == FULL_RECORD
    assert stored.cursor == Cursor(NOW_US + 6, 70_009)
    assert stored.subscriptions == (SUBS[1], live, SUBS[3])
    assert stored.awaiting_release == (1, 65_535)


async def test_discard_leaves_nothing(backend: Backend) -> None:
    put_full_session(backend.database)
    create_session(backend.database, "other")
    batch = Batch()
    batch.put_inbox("full", entry(5), epoch=3)
    batch.put_inbox("other", entry(6), epoch=1)
    write(backend.database, batch)
    batch = Batch()
    batch.put_inbox("full", entry(7), epoch=3)
    batch.discard_session("full")
    batch.discard_session("never was")
    write(backend.database, batch)
    for database in backend.now_and_restarted():
        assert await database.open_session("full") is None
        assert await read_inbox(database, "full") == []
        assert await read_inbox(database, "other") == [6]
        assert await database.session_count() == 1
        assert await database.next_deadline_us() == 0
    create_session(backend.database, "full", epoch=1)
    stored = await backend.database.open_session("full")
    assert stored is not None
    assert (stored.cursor, stored.subscriptions, stored.awaiting_release) == (Cursor(), (), ())
    assert await read_inbox(backend.database, "full") == []


async def test_names_and_records_apart(backend: Backend) -> None:
    clients = ["a", "a/b", "b", "é", "\U0001f600"]
    for client_id in reversed(clients):
        create_session(backend.database, client_id)
    for database in backend.now_and_restarted():
        assert await database.session_ids(after="", limit=9) == clients
        assert await database.session_ids(after="a", limit=2) == clients[1:3]
        assert await database.session_ids(after="a!", limit=1) == ["a/b"]
        assert await database.session_ids(after=clients[-1], limit=9) == []
        records = await database.session_records(["b", "none", "a"])
        assert [each.client_id for each in records] == ["b", "a"]
        assert await database.session_records([]) == []


async def subscribers(database: Database, topic: str, *, limit: int = 1000) -> list[Subscriber]:
    """Page by page, each bounded in its work."""
    found: list[Subscriber] = []
    start: bytes | None = b""
    while start is not None:
        page = await database.subscribers(topic, start=start, limit=limit, steps_max=limit + 1)
        assert len(page.found) <= limit
        assert page.next_start is None or page.next_start > start
        found += page.found
        start = page.next_start
    return found


async def test_subscribers_of_a_topic(backend: Backend) -> None:
    create_session(backend.database, "c1")
    batch = Batch()
    batch.put_subscription("c1", Subscription("a/#", since_offset=5), epoch=1)
    batch.put_subscription("c1", Subscription("a/#", "g", 1, since_offset=5), epoch=1)
    stored = Subscription("a/#", qos=1, since_offset=7, where="x > 1", where_id="hot")
    batch.put_subscription("c1", stored, epoch=1)
    batch.put_subscription("c1", Subscription("b", since_offset=5), epoch=1)
    backfilled = Subscription(
        "+/x", qos=2, since_offset=5, backfill=BackfillProgress(True, "", 5, 5)
    )
    batch.put_subscription("c1", backfilled, epoch=1)
    write(backend.database, batch)
    expected = [("c1", name) for name in ("$filter/hot/a/#", "$share/g/a/#", "+/x", "a/#")]
    for database in backend.now_and_restarted():
        assert sorted(await subscribers(database, "a/x")) == expected
        assert await subscribers(database, "c") == []
    # Replaced, one ends while another of its name begins, one is deleted, and one is never made.
    batch = Batch()
    batch.put_subscription("c1", Subscription("a/#", since_offset=17, qos=1), epoch=1)
    ended = Subscription("a/#", since_offset=5, until_offset=17)
    batch.put_subscription("c1", ended, epoch=1)
    batch.put_subscription("c1", Subscription("+/x", qos=2, since_offset=5), epoch=1)
    batch.delete_subscription("c1", Subscription("a/#", "g", since_offset=5), epoch=1)
    batch.delete_subscription("c1", Subscription("a/x"), epoch=1)
    write(backend.database, batch)
    expected = [("c1", name) for name in ("$filter/hot/a/#", "+/x", "a/#")]
    for database in backend.now_and_restarted():
        assert sorted(await subscribers(database, "a/x")) == expected
    batch = Batch()
    batch.put_subscription("c1", Subscription("a/+", since_offset=18), epoch=1)
    batch.discard_session("c1")
    batch.put_session(record("c1"))
    batch.put_subscription("c1", Subscription("b/#", since_offset=20), epoch=1)
    write(backend.database, batch)
    for database in backend.now_and_restarted():
        assert await subscribers(database, "a/x") == []
        assert await subscribers(database, "b") == [("c1", "b/#")]


async def test_subscribers_by_a_text(database: Database) -> None:
    batch = Batch()
    for client_id in ("c1", "c2"):
        batch.put_session(record(client_id))
        for group, where_id in (("", ""), ("g", ""), ("g", "hot")):
            sub = Subscription("a/b", group, since_offset=5, where_id=where_id)
            batch.put_subscription(client_id, sub, epoch=1)
    batch.put_subscription("c2", Subscription("bb/a", since_offset=5), epoch=1)
    ended = Subscription("a/b/c", since_offset=5, until_offset=6)
    batch.put_subscription("c2", ended, epoch=1)
    write(database, batch)
    for text in ("a/b", "/", "bb", "$share/g/", "hot", "$filter/hot/a", "c1", "\0", "b/a", ""):
        names = ("a/b", "$share/g/a/b", "$share/g/$filter/hot/a/b")
        every = [(client_id, name) for client_id in ("c1", "c2") for name in names]
        expected = [each for each in [*every, ("c2", "bb/a")] if text in each[1]]
        for limit in (1, 2, 100):
            found: list[Subscriber] = []
            start: bytes | None = b""
            while start is not None:
                page = await database.subscribers_like(
                    text, start=start, limit=limit, steps_max=limit
                )
                found += page.found
                start = page.next_start
            assert sorted(found) == sorted(expected), text


FILTERS = (
    "#",
    "+",
    "+/#",
    "/",
    "//#",
    "/+",
    "$SYS/#",
    "$SYS/+",
    "a",
    "a/",
    "a/#",
    "a/+",
    "a/+/+",
    "+/b",
    "a/b",
    "a/b/#",
    "a/b/c",
    "a/!/c",
    "!/#",
    "a/\x01",
    "+/+/+",
    "+//c",
    "é/+",
    "a/bb",
)
TOPICS = (
    "a",
    "a/b",
    "a/b/c",
    "a/",
    "/",
    "//c",
    "/x",
    "!/b",
    "$SYS/x",
    "$SYS",
    "a/\x01",
    "é/b",
    "ab",
)


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_subscribers_are_found_as_they_match(database: Database, limit: int) -> None:
    """Whatever the filters, and wherever pages are cut."""
    clients = ("a", "c1", "\U0010ffff")
    batch = Batch()
    for client_id in clients:
        batch.put_session(record(client_id))
        for topic_filter in FILTERS:
            batch.put_subscription(client_id, Subscription(topic_filter, since_offset=5), epoch=1)
    write(database, batch)
    for topic in TOPICS:
        expected = [(c, f) for c in clients for f in FILTERS if matches(f, topic)]
        found = await subscribers(database, topic, limit=limit)
        assert sorted(found) == sorted(expected), topic


async def test_discard_and_create_in_one_batch(backend: Backend) -> None:
    put_full_session(backend.database)
    batch = Batch()
    batch.put_inbox("full", entry(7), epoch=3)
    batch.discard_session("full")
    batch.put_session(record("full", epoch=1))
    batch.put_subscription("full", SUBS[3], epoch=1)
    batch.put_inbox("full", entry(9), epoch=1)
    write(backend.database, batch)
    for database in backend.now_and_restarted():
        stored = await database.open_session("full")
        assert stored is not None
        assert stored.record == record("full", epoch=1)
        assert stored.cursor == Cursor()
        assert stored.subscriptions == (SUBS[3],)
        assert stored.awaiting_release == ()
        assert await read_inbox(database, "full") == [9]
        assert await database.session_count() == 1
        assert await database.next_deadline_us() == 0


@pytest.mark.trap(49)
async def test_similar_client_ids_are_different_sessions(backend: Backend) -> None:
    """Keys hold the client id itself, no hash of it: prefixes, separators and case count."""
    client_ids = ["a", "ab", "a/b", "A", "a\x01", "ä", "a" * 65_535, "a" * 256, "sx", "\u20ac"]
    database = backend.database
    for number, client_id in enumerate(client_ids):
        batch = Batch()
        batch.put_session(record(client_id, epoch=1, dropped_count=number))
        batch.put_cursor(client_id, Cursor(number), epoch=1)
        batch.put_subscription(client_id, Subscription(f"f/{number}"), epoch=1)
        batch.put_inbox(client_id, entry(number + 1), epoch=1)
        write(database, batch)
    for database in backend.now_and_restarted():
        for number, client_id in enumerate(client_ids):
            stored = await database.open_session(client_id)
            assert stored is not None
            assert stored.record.client_id == client_id
            assert stored.record.dropped_count == number
            assert stored.cursor.offset == number
            assert [sub.filter for sub in stored.subscriptions] == [f"f/{number}"]
            assert await read_inbox(database, client_id) == [number + 1]
    batch = Batch()
    batch.discard_session("a")
    write(database, batch)
    listed = [found.client_id async for found in database.sessions()]
    assert listed == sorted(set(client_ids) - {"a"}, key=str.encode)


async def test_sessions_are_listed_in_order_and_from_a_position(database: Database) -> None:
    for client_id in ("b", "é", "a", "c", "a!"):
        create_session(database, client_id)
    listed = [found.client_id async for found in database.sessions()]
    assert listed == ["a", "a!", "b", "c", "é"]
    assert [found.client_id async for found in database.sessions(after="b")] == ["c", "é"]
    assert [found.client_id async for found in database.sessions(after="bb")] == ["c", "é"]
    assert await database.session_count() == 5


async def test_sessions_may_change_while_they_are_listed(database: Database) -> None:
    for client_id in ("a", "b", "c"):
        create_session(database, client_id)
    listed: list[str] = []
    async for found in database.sessions():
        listed.append(found.client_id)
        batch = Batch()
        batch.discard_session(found.client_id)
        write(database, batch)
    assert listed == ["a", "b", "c"]
    assert await database.session_count() == 0


async def test_deadlines_follow_the_record(backend: Backend) -> None:
    database = backend.database
    for client_id, at in (("late", 300), ("early", 100), ("middle", 200), ("never", 0)):
        batch = Batch()
        batch.put_session(record(client_id, expires_at_us=at))
        write(database, batch)
    assert await database.next_deadline_us() == 100
    due = await database.due_sessions(250, limit=10)
    assert [found.client_id for found in due] == ["early", "middle"]
    assert await database.due_sessions(99, limit=10) == []
    assert [found.client_id for found in await database.due_sessions(300, limit=1)] == ["early"]
    batch = Batch()
    batch.put_session(record("early", epoch=2))
    batch.put_session(record("never", will_at_us=50, expires_at_us=70))
    write(database, batch)
    database = backend.restart()
    assert await database.next_deadline_us() == 50
    due = await database.due_sessions(1_000, limit=10)
    assert [found.client_id for found in due] == ["never", "middle", "late"]
    batch = Batch()
    batch.discard_session("never")
    batch.discard_session("middle")
    write(database, batch)
    assert await database.next_deadline_us() == 300
    batch = Batch()
    batch.put_session(record("late", expires_at_us=20))
    write(database, batch)
    assert await database.next_deadline_us() == 20


STALE: list[tuple[str, tuple[object, ...]]] = [
    ("put_cursor", ("c1", Cursor())),
    ("put_subscription", ("c1", SUBS[0])),
    ("delete_subscription", ("c1", SUBS[0])),
    ("put_awaiting_release", ("c1", 1)),
    ("delete_awaiting_release", ("c1", 1)),
    ("put_inbox", ("c1", entry(5))),
    ("trim_inbox", ("c1", 5)),
]


async def test_stale_owner_is_fenced(backend: Backend) -> None:
    create_session(backend.database, "c1", epoch=4)
    for database in backend.now_and_restarted():
        for name, args in STALE:
            batch = Batch()
            getattr(batch, name)(*args, epoch=3)
            assert submit(database, batch), name
        batch = Batch()
        batch.put_session(record("c1", epoch=3))
        assert submit(database, batch)
        batch = Batch()
        batch.put_cursor("nobody", Cursor(), epoch=9)
        assert submit(database, batch)
        batch = Batch()
        batch.put_cursor("c1", Cursor(), epoch=4)
        assert not submit(database, batch)
        assert await read_inbox(database, "c1") == []
        stored = await database.open_session("c1")
        assert stored is not None
        assert (stored.record.epoch, stored.subscriptions) == (4, ())


def test_takeover_inside_a_batch_fences_the_rest_of_it(database: Database) -> None:
    create_session(database, "c1", epoch=1)
    batch = Batch()
    batch.put_cursor("c1", Cursor(1), epoch=1)
    batch.put_session(record("c1", epoch=2))
    batch.put_cursor("c1", Cursor(2), epoch=1)
    assert submit(database, batch)
    batch = Batch()
    batch.discard_session("c1")
    batch.put_cursor("c1", Cursor(2), epoch=2)
    assert submit(database, batch)
    batch = Batch()
    batch.put_session(record("c1", epoch=2))
    batch.put_cursor("c1", Cursor(2), epoch=2)
    batch.discard_session("c1")
    batch.put_session(record("c1", epoch=1))
    batch.put_cursor("c1", Cursor(3), epoch=1)
    assert not submit(database, batch)


async def test_batch_overtaken_by_a_later_owner_submit(database: Database) -> None:
    create_session(database, "c1", epoch=1)
    create_session(database, "c2", epoch=1)
    overtaken = Batch()
    overtaken.put_cursor("c1", Cursor(1), epoch=1)
    orphan = Batch()
    orphan.put_cursor("c2", Cursor(1), epoch=1)
    old_record = Batch()
    old_record.put_session(record("c1", epoch=1))
    batch = Batch()
    batch.put_session(record("c1", epoch=2))
    batch.discard_session("c2")
    write(database, batch)
    for stale in (overtaken, orphan, old_record):
        assert submit(database, stale)
    stored = await database.open_session("c1")
    assert stored is not None
    assert (stored.record.epoch, stored.cursor) == (2, Cursor())
    assert await database.open_session("c2") is None


async def read_inbox(database: Database, client_id: str, after: int = 0) -> list[int]:
    entries = await database.read_inbox(
        client_id, after_offset=after, until_offset=2**62, limit=1_000
    )
    return [found.offset for found in entries]


async def test_inbox_entries_come_back_in_order(backend: Backend) -> None:
    create_session(backend.database)
    entries = [
        entry(5, qos=2, retain=True, identifiers=(1, 268_435_455), group_key="g/a/#"),
        entry(9, b"", qos=1),
        entry(300),
        entry(2**40),
    ]
    entries[1].message = None
    batch = Batch()
    for position in (2, 0, 3, 1):
        batch.put_inbox("c1", entries[position], epoch=1)
    write(backend.database, batch)
    for database in backend.now_and_restarted():
        page = await database.read_inbox("c1", after_offset=0, until_offset=2**62, limit=9)
        assert page == entries
        page = await database.read_inbox("c1", after_offset=5, until_offset=300, limit=9)
        assert page == entries[1:3]
        page = await database.read_inbox("c1", after_offset=0, until_offset=2**62, limit=2)
        assert page == entries[:2]


async def test_inbox_entry_is_replaced_by_a_tombstone(database: Database) -> None:
    create_session(database)
    for value in (entry(5), entry(5, qos=2)):
        if value.qos == 2:
            value.message = None
        batch = Batch()
        batch.put_inbox("c1", value, epoch=1)
        write(database, batch)
    (found,) = await database.read_inbox("c1", after_offset=0, until_offset=9, limit=9)
    assert found.message is None
    assert found.qos == 2


async def test_trim_inbox_spans_batches(backend: Backend) -> None:
    create_session(backend.database)
    batch = Batch()
    for offset in range(1, 6):
        batch.put_inbox("c1", entry(offset), epoch=1)
    write(backend.database, batch)
    begun_early = Batch()
    begun_early.trim_inbox("c1", 8, epoch=1)
    begun_early.put_inbox("c1", entry(8), epoch=1)
    batch = Batch()
    batch.put_inbox("c1", entry(6), epoch=1)
    batch.put_inbox("c1", entry(7), epoch=1)
    batch.trim_inbox("c1", 2, epoch=1)
    batch.trim_inbox("c1", 6, epoch=1)
    write(backend.database, batch)
    assert await read_inbox(backend.database, "c1") == [7]
    write(backend.database, begun_early)
    for database in backend.now_and_restarted():
        assert await read_inbox(database, "c1") == [8]
    batch = Batch()
    batch.put_inbox("c1", entry(3), epoch=1)
    write(backend.database, batch)
    batch = Batch()
    batch.trim_inbox("c1", 7, epoch=1)
    write(backend.database, batch)
    assert await read_inbox(backend.database, "c1") == [8]


async def test_inbox_bounds_may_lie_outside(database: Database) -> None:
    create_session(database)
    batch = Batch()
    batch.put_inbox("c1", entry(1), epoch=1)
    batch.trim_inbox("c1", -5, epoch=1)
    batch.trim_inbox("c1", 0, epoch=1)
    write(database, batch)
    for after, until, expected in ((-9, 2**63 - 1, [1]), (-9, -3, []), (0, 0, []), (5, 1, [])):
        found = await database.read_inbox("c1", after_offset=after, until_offset=until, limit=9)
        assert [value.offset for value in found] == expected


async def test_groups_members_and_entries(backend: Backend) -> None:
    group = GroupRecord("g", "a/#", 17, NOW_US)
    near = GroupRecord("g", "a/#/", 18, NOW_US)
    batch = Batch()
    for value in (near, group):
        batch.put_group(value)
        for client_id in ("é", "b", "a"):
            batch.put_group_member(value.key, client_id)
        for offset in (9, 5):
            batch.put_group_entry(value.key, entry(offset, qos=2))
    batch.delete_group_member(group.key, "b")
    write(backend.database, batch)
    for database in backend.now_and_restarted():
        assert await database.groups() == [group, near]
        assert await database.group_members(group.key) == ["a", "é"]
        assert await database.group_members("nobody/x") == []
        found = await database.read_group_entries(group.key, limit=9)
        assert found == [entry(5, qos=2), entry(9, qos=2)]
        assert await database.read_group_entries(group.key, limit=1) == found[:1]
        assert await database.read_group_entries("nobody/x", limit=9) == []
    batch = Batch()
    moved = GroupRecord("g", "a/#", 99, NOW_US)
    batch.put_group(moved)
    batch.delete_group_entry(group.key, entry(5))
    write(backend.database, batch)
    assert await backend.database.groups() == [moved, near]
    left = await backend.database.read_group_entries(group.key, limit=9)
    assert [value.offset for value in left] == [9]
    batch = Batch()
    for client_id in ("a", "é"):  # a group with members is not discarded where several nodes write
        batch.delete_group_member(group.key, client_id)
    batch.discard_group(group.key)
    write(backend.database, batch)
    for database in backend.now_and_restarted():
        assert await database.groups() == [near]
        assert await database.group_members(group.key) == []
        assert await database.read_group_entries(group.key, limit=9) == []
        assert await database.group_members(near.key) == ["a", "b", "é"]
        assert len(await database.read_group_entries(near.key, limit=9)) == 2
