"""A restore to an earlier offset: compared with a backup that was made there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perdure.backup.directory import DirectoryPlace
from perdure.backup.restoring import restore
from perdure.model import Cursor, GroupRecord, InboxEntry, StoredSession, Subscription
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.inspection import inspect
from perdure.topic.proposal import Structure
from tests.contract.values import NOW_US, append_all, message, record
from tests.support.staged import Staged
from tests.unit.backup.conftest import CONFIG, back_up, write

T = TypeVar("T")
STEP = 1_000_000
THEN = NOW_US + 10 * STEP
"""Until here the first part reaches."""


def listed(items: AsyncIterator[T]) -> list[T]:
    async def take() -> list[T]:
        return [item async for item in items]

    return asyncio.run(take())


def logged(database: RocksDatabase) -> list[tuple[int, str, bytes]]:
    return [
        (each.offset, each.topic, each.payload)
        for generation in database.tables()[1]
        for each in generation.layout.scan(["#"], after_offset=0, until_offset=2**62)
    ]


def stored(database: RocksDatabase, client_id: str) -> StoredSession | None:
    return asyncio.run(database.open_session(client_id))


def retained(database: RocksDatabase) -> dict[str, bytes]:
    page = asyncio.run(database.read_retained("#", after_topic="", limit=100, scan_max=1_000))
    return {each.topic: each.payload for each in page.messages}


def retain(database: RocksDatabase, topic: str, payload: bytes, at_us: int) -> None:
    batch = Staged(database)
    sent = message(topic, payload, retain=True)
    batch.append(sent, at_us)
    if payload:
        batch.put_retained(sent)
    else:
        batch.delete_retained(topic)
    batch.write()


def first_part(database: RocksDatabase) -> None:
    """What there is until then."""
    batch = Staged(database)
    for name in ("c1", "ended"):
        batch.put_session(record(name, connected=False))
    batch.put_subscription("c1", Subscription("a/#", qos=2, since_offset=1), epoch=1)
    batch.put_subscription("c1", Subscription("dropped", qos=1, since_offset=1), epoch=1)
    batch.put_group(GroupRecord("g", "s", 1, NOW_US))
    batch.write()
    write(database, *(f"a/{number}" for number in range(3)), at_us=NOW_US)
    retain(database, "r/same", b"old", NOW_US + STEP)
    retain(database, "r/changed", b"old", NOW_US + STEP)
    retain(database, "r/cleared", b"old", NOW_US + STEP)
    # A burst is one row: later it is cut in the middle.
    append_all(database, *(message("a/burst", bytes([n])) for n in range(8)), now_us=THEN)


def second_part(database: RocksDatabase, then: int) -> None:
    """What comes later."""
    late = then + STEP
    batch = Staged(database)
    batch.discard_session("ended")
    batch.put_session(record("new", created_at_us=late))
    batch.put_subscription("new", Subscription("#", qos=1, since_offset=late), epoch=1)
    batch.put_subscription("c1", Subscription("late", qos=1, since_offset=late), epoch=1)
    batch.put_subscription(
        "c1", Subscription("dropped", qos=1, since_offset=1, until_offset=late), epoch=1
    )
    batch.put_group(GroupRecord("g", "late", 1, late))
    batch.write()
    write(database, "a/later", "a/later", at_us=late)
    retain(database, "r/changed", b"new", late)
    retain(database, "r/cleared", b"", late)
    retain(database, "r/late", b"new", late)
    # Nothing in the log says what was retained there before.
    batch = Staged(database)
    batch.put_retained(message("r/unrecorded", offset=database.last_offset))
    batch.write()
    share = InboxEntry(0, message("s", offset=NOW_US), qos=1, group_key="g/s")
    own = InboxEntry(0, message("p", offset=late), qos=1)
    batch = Staged(database)
    for entry in (share, own):
        batch.place(entry)
        batch.put_inbox("c1", entry, epoch=1)
    # Settled beyond the cursor: the second of the first part, one that will be cut, the share.
    batch.put_cursor("c1", Cursor(1, 40, (42, 52, 54), (43,), 54), epoch=1)
    batch.write()
    database.rotate(late)
    write(database, "a/much-later", at_us=late + STEP)


@pytest.fixture
def taken(tmp_path: Path) -> dict[str, Any]:
    """Backups of then and of later."""
    data, place = tmp_path / "d", DirectoryPlace(tmp_path / "b")
    database = RocksDatabase.open(data, config=CONFIG, now_us=NOW_US)
    first_part(database)
    then = back_up(data, place)
    at = database.last_offset
    second_part(database, at)
    later = back_up(data, place)
    database.close()
    return {"place": place, "then": then, "later": later, "at": at, "to": tmp_path}


def test_the_log_and_what_it_tells_are_as_they_were(taken: dict[str, Any]) -> None:
    place, to = taken["place"], taken["to"]
    restore(place, taken["then"], to / "then", config=CONFIG)
    found = restore(place, taken["later"], to / "cut", config=CONFIG, at=taken["at"])
    assert found.position == taken["at"]
    then = RocksDatabase.open(to / "then", read_only=True)
    cut = RocksDatabase.open(to / "cut", read_only=True)
    assert logged(cut) == logged(then)
    assert found.messages == len(logged(then)) == 14
    assert (
        retained(cut)
        == retained(then)
        == {
            "r/same": b"old",
            "r/changed": b"old",
            "r/cleared": b"old",
        }
    )
    before, after = stored(then, "c1"), stored(cut, "c1")
    assert before is not None
    assert after is not None
    assert after.subscriptions == before.subscriptions
    assert after.record.subscription_count == 2
    assert [each.key for each in asyncio.run(cut.groups())] == ["g/s"]
    # What cannot be known: a session that ended since.
    assert [each.client_id for each in listed(then.sessions())] == ["c1", "ended"]
    assert [each.client_id for each in listed(cut.sessions())] == ["c1"]
    rewound = found.rewound
    assert (rewound.messages, rewound.sessions, rewound.groups) == (6, 1, 1)
    assert (rewound.subscriptions, rewound.revived, rewound.entries) == (1, 1, 1)
    assert (rewound.retained, rewound.retained_found) == (3, 2)
    assert rewound.unknown_topics == ("r/late", "r/unrecorded")
    # Offsets that were given are not given again, and the share of a group is still to come.
    assert cut.last_offset > taken["at"]
    inbox = asyncio.run(cut.read_inbox("c1", after_offset=0, until_offset=2**62, limit=9))
    assert [each.group_key for each in inbox] == ["g/s"]
    # Three of a/#, eight of a burst, and the share, from serial number 41 on: what was settled or
    # half done keeps its message, and what was cut has no number.
    assert after.cursor == Cursor(1, 40, (42, 43, 52), (), 52)
    then.close()
    cut.close()
    assert list(inspect(to / "cut", CONFIG)) == []


def test_a_burst_is_cut_in_the_middle(taken: dict[str, Any]) -> None:
    at = taken["at"] - 3
    found = restore(taken["place"], taken["later"], taken["to"] / "x", config=CONFIG, at=at)
    database = RocksDatabase.open(taken["to"] / "x", read_only=True)
    assert [payload for _, topic, payload in logged(database) if topic == "a/burst"] == [
        bytes([number]) for number in range(5)
    ]
    assert found.messages == 11
    session = stored(database, "c1")
    assert session is not None
    database.close()
    assert list(inspect(taken["to"] / "x", CONFIG)) == []


def test_a_run_of_the_index_is_cut_in_the_middle(tmp_path: Path) -> None:
    place, to = DirectoryPlace(tmp_path / "b"), tmp_path / "x"
    database = RocksDatabase.open(tmp_path / "d", config=CONFIG, now_us=NOW_US)
    database.rotate_to(Structure((0,), ("d/+/t",)), NOW_US)
    topics = [f"d/{number % 2}/t" for number in range(20)]
    offsets = append_all(database, *map(message, topics), now_us=NOW_US + STEP)
    taken = back_up(tmp_path / "d", place)
    database.close()
    restore(place, taken, to, config=CONFIG, at=offsets[12])
    assert list(inspect(to, CONFIG)) == []
    database = RocksDatabase.open(to, config=CONFIG)
    for _ in range(2):
        found = asyncio.run(database.read(["d/0/t"], after_offset=0, until_offset=2**62, limit=99))
        assert [each.offset for each in found.messages[:7]] == offsets[:13:2]
        # What is written now lies behind what was cut.
        append_all(database, *map(message, topics), now_us=NOW_US + 2 * STEP)
    assert len(found.messages) == 7 + 10
    database.close()
    assert list(inspect(to, CONFIG)) == []


def test_a_restored_session_is_one_that_nobody_has_met(tmp_path: Path) -> None:
    data, place = tmp_path / "d", DirectoryPlace(tmp_path / "b")
    database = RocksDatabase.open(data, config=CONFIG, now_us=NOW_US)
    batch = Staged(database)
    batch.put_session(record("c1", epoch=3, protocol=5))
    batch.put_cursor("c1", Cursor(7, 5, (7,), (6, 9), 9), epoch=3)
    batch.put_awaiting_release("c1", 4, epoch=3)
    batch.write()
    write(database, "x")
    manifest = back_up(data, place)
    database.close()
    restore(place, manifest, tmp_path / "to", config=CONFIG)
    database = RocksDatabase.open(tmp_path / "to", read_only=True)
    found = stored(database, "c1")
    assert found is not None
    assert (found.record.protocol, found.record.epoch) == (0, 3)
    assert found.record.cut_offset == manifest.position
    assert found.cursor == Cursor(7, 5, (6, 7, 9), (), 9)
    assert found.awaiting_release == ()
    database.close()
