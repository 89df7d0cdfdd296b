"""A data directory as target: what a broker finds there, and what a second run finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from perdure.errors import StorageError
from perdure.model import Cursor, Subscription
from perdure.pipeline.jobs.migrate.contract import RangeResult
from perdure.pipeline.jobs.migrate.directory import DatabaseTarget, Sessions, serial_after
from perdure.pipeline.jobs.migrate.task import put_pages
from perdure.pipeline.tbmq.pending import PendingPage
from perdure.session.seqno import packet_id_of
from perdure.storage.memory import MemoryDatabase
from tests.unit.pipeline.jobs.migrate.samples import HOUR_US, NOW_US, owed, pages

MIGRATION = Sessions(NOW_US)


async def each(found: Iterable[PendingPage]) -> AsyncIterator[PendingPage]:
    for page in found:
        yield page


async def put(
    database: MemoryDatabase, queue: list[PendingPage], sessions: Sessions = MIGRATION
) -> RangeResult:
    target = DatabaseTarget(database, sessions)
    await target.begin()
    return await put_pages(0, each(queue), target)


async def test_a_session_with_identifiers_of_its_own() -> None:
    database = MemoryDatabase()
    entries = [
        owed(1, 65_534, expires_at_us=NOW_US + HOUR_US),
        owed(2, 65_535, released=True),
        owed(3, 4, retain=True, identifiers=(7,), forget_at_us=NOW_US + 5),
        owed(4, 4),
    ]
    result = await put(database, pages("c", entries, last=9))
    assert result.mismatches == []
    assert (result.clients, result.entries, result.pubrels) == (1, 4, 1)
    stored = await database.open_session("c")
    assert stored is not None
    assert not stored.record.connected
    assert stored.cursor.serial == 65_533
    assert stored.cursor.released == (65_535,)
    inbox = await database.read_inbox("c", after_offset=0, until_offset=2**62, limit=9)
    assert [packet_id_of(entry.serial) for entry in inbox] == [65_534, 65_535, 4, 4, 9]
    serials = [entry.serial for entry in inbox]
    assert serials == sorted(set(serials))
    assert inbox[-1].message is None
    assert [entry.forget_at_us for entry in inbox[:3]] == [NOW_US + HOUR_US, 0, NOW_US + 5]
    assert (inbox[2].retain, inbox[2].identifiers) == (True, (7,))
    assert stored.cursor.offset < inbox[0].offset
    # All of it may have been sent before; what is published from now on was not.
    assert inbox[-1].offset <= stored.record.cut_offset <= database.last_offset


async def test_an_empty_queue_goes_on_counting() -> None:
    database = MemoryDatabase()
    assert (await put(database, pages("c", [], last=500))).mismatches == []
    stored = await database.open_session("c")
    assert stored is not None
    cursor = stored.cursor
    assert cursor == Cursor(cursor.offset, 500, (), (), 500)
    assert (await put(database, pages("d", []))).mismatches == []
    assert await database.open_session("d") is not None


async def test_subscriptions() -> None:
    database = MemoryDatabase()
    subs = [Subscription("a/#", qos=1), Subscription("b", "g", qos=2)]
    sessions = Sessions(NOW_US, 60, {"c": subs, "only": subs[:1]})
    target = DatabaseTarget(database, sessions)
    await target.begin()
    await put_pages(0, each(pages("c", [owed(1, 1)])), target)
    assert await target.put_subscribers() == 1
    assert await target.put_subscribers() == 0
    stored = await database.open_session("c")
    assert stored is not None
    assert stored.record.expires_at_us == NOW_US + 60_000_000
    assert [sub.name for sub in stored.subscriptions] == ["$share/g/b", "a/#"]
    # What is published from now on is for them; what was taken over stands in the inbox.
    assert {sub.since_offset for sub in stored.subscriptions} == {stored.record.cut_offset}
    assert await database.group_members("g/b") == ["c"]
    assert [record.key for record in await database.groups()] == ["g/b"]
    assert await database.open_session("only") is not None


async def test_shared_queues_become_groups() -> None:
    database = MemoryDatabase()
    queue = pages("ss_my_g_x/+", [owed(1, 5), owed(2, 6, released=True), owed(3, 7)])
    sessions = Sessions(NOW_US, subscriptions={"c": [Subscription("x/+", "my_g")]})
    for _ in range(2):
        result = await put(database, queue, sessions)
        assert result.mismatches == []
        assert (result.entries, result.losses.orphaned) == (2, 1)
    assert [record.key for record in await database.groups()] == ["my_g/x/+"]
    found = await database.read_group_entries("my_g/x/+", limit=9)
    assert [entry.message.payload for entry in found if entry.message] == [b"1", b"3"]
    assert await database.open_session("ss_my_g_x/+") is None
    plain = Sessions(NOW_US, shared=False)
    assert (await put(database, pages("ss_g_x", [owed(1, 5)]), plain)).mismatches == []
    assert await database.open_session("ss_g_x") is not None


async def test_shared_queues_keep_subscription_identifiers() -> None:
    """They are part of the sum by which the copy is verified."""
    database = MemoryDatabase()
    queue = pages("ss_g_x/+", [owed(1, 5, identifiers=(3, 268_435_455)), owed(2, 6)])
    sessions = Sessions(NOW_US, subscriptions={"c": [Subscription("x/+", "g")]})
    assert (await put(database, queue, sessions)).mismatches == []
    found = await database.read_group_entries("g/x/+", limit=9)
    assert [entry.identifiers for entry in found] == [(3, 268_435_455), ()]


async def test_a_second_run_changes_nothing() -> None:
    database = MemoryDatabase()
    queue = pages("c", [owed(1, 1), owed(2, 2), owed(3, 3)])
    await put(database, queue)
    before = await database.read_inbox("c", after_offset=0, until_offset=2**62, limit=9)
    result = await put(database, queue)
    assert result.mismatches == []
    after = await database.read_inbox("c", after_offset=0, until_offset=2**62, limit=9)
    assert [entry.offset for entry in after] == [entry.offset for entry in before]


async def test_a_session_that_was_half_written_is_written_again() -> None:
    database = MemoryDatabase()
    queue = pages("c", [owed(1, 1), owed(2, 2), owed(3, 3)])
    target = DatabaseTarget(database, MIGRATION)
    await target.put(queue[0])
    await target.flush()
    stored = await database.open_session("c")
    assert stored is not None
    assert stored.record.changed_at_us == 0
    assert (await put(database, queue)).mismatches == []
    inbox = await database.read_inbox("c", after_offset=0, until_offset=2**62, limit=9)
    assert [entry.message.payload for entry in inbox if entry.message] == [b"1", b"2", b"3"]


async def test_a_session_of_somebody_else_is_not_touched() -> None:
    database = MemoryDatabase()
    await put(database, pages("c", [owed(1, 1)]))
    result = await put(database, pages("c", [owed(1, 2)]), Sessions(NOW_US + 1))
    [mismatch] = result.mismatches
    assert (mismatch.client_id, mismatch.expected) == ("c", 1)
    assert "not of this migration" in mismatch.reason
    inbox = await database.read_inbox("c", after_offset=0, until_offset=2**62, limit=9)
    assert [entry.serial for entry in inbox] == [1]


@pytest.mark.trap(22)
async def test_a_batch_that_was_not_written_is_not_forgotten() -> None:
    """Trap 22: the write fails, and so does the range; a repeat brings everything."""
    database = MemoryDatabase()
    queue = pages("c", [owed(1, 1), owed(2, 2)])

    class Failing(MemoryDatabase):
        def submit(self, batch: object, now_us: int) -> None:
            raise StorageError("no space")

    failing = Failing()
    target = DatabaseTarget(failing, MIGRATION)
    await target.put(queue[0])
    with pytest.raises(StorageError):
        await target.flush()
    with pytest.raises(StorageError):
        await target.flush()
    assert (await put(database, queue)).mismatches == []


@pytest.mark.parametrize(
    ("serial", "packet_id", "expected"),
    [
        (0, 1, 1),
        (5, 5, 65_540),
        (5, 4, 65_539),
        (5, 6, 6),
        (65_535, 1, 65_536),
        (65_534, 65_535, 65_535),
    ],
)
def test_serial_after(serial: int, packet_id: int, expected: int) -> None:
    assert serial_after(serial, packet_id) == expected
    assert packet_id_of(expected) == packet_id
