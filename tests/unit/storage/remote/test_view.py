"""What a state in a server holds, from outside."""

from __future__ import annotations

import pytest

from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord
from perdure.storage.contract import Counted
from perdure.storage.remote.store import RemoteDatabase
from perdure.storage.remote.view import StateView
from tests.support.remote import MemoryDriver, ServerState
from tests.support.staged import Staged, take_offset
from tests.unit.storage.remote.helpers import NOW_US, looking


async def test_it_has_what_the_database_has() -> None:
    state = ServerState()
    database = await RemoteDatabase.open(MemoryDriver(state), now_us=NOW_US)
    batch = Staged(database)
    for number in range(4):
        batch.append(Message(f"a/{number}", b"%d" % number, 1), NOW_US + number)
    batch.put_session(
        SessionRecord("c", epoch=1, created_at_us=1, expiry_s=60, connected=False, changed_at_us=1)
    )
    batch.put_group(GroupRecord("g", "a/+", 0, 1))
    batch.put_retained(Message("r", b"", 1, retain=True, offset=NOW_US))
    batch.write()
    database.rotate(NOW_US + 10)
    later = Staged(database)
    last = later.append(Message("a/late", b"x", 1), NOW_US + 20)
    later.write()
    await database.open_session("c")

    view = await StateView.open(looking(state))
    assert view is not None
    assert view.last_offset == database.last_offset == last
    assert view.generations() == database.generations()
    assert (await view.session_count(), await view.retained_count()) == (1, 1)
    assert [group.key for group in await view.groups()] == ["g/a/+"]
    page = await view.read(["a/+"], after_offset=0, until_offset=last, limit=2)
    assert [message.topic for message in page.messages] == ["a/0", "a/1"]
    rest = await view.read(["a/+"], after_offset=page.through_offset, until_offset=last, limit=9)
    assert [message.topic for message in rest.messages] == ["a/2", "a/3", "a/late"]
    counted = await view.count(["a/+"], after_offset=0, until_offset=last, limit=99)
    assert counted == Counted(5, last)
    counted = await view.count(["a/+"], after_offset=0, until_offset=last, limit=2)
    assert counted == Counted(2, page.through_offset)
    assert [finding async for finding in view.check()] == []
    await view.close()
    assert state.is_held, "the broker's claim is not touched"


async def test_a_server_without_a_state() -> None:
    assert await StateView.open(looking(ServerState())) is None


async def test_sessions_in_pages_and_what_each_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.storage.remote.reader.PAGE", 2)
    state = ServerState()
    database = await RemoteDatabase.open(MemoryDriver(state), now_us=NOW_US)
    batch = Staged(database)
    names = [f"c{number}" for number in range(5)]
    for name in names:
        batch.put_session(
            SessionRecord(
                name, epoch=1, created_at_us=1, expiry_s=60, connected=False, changed_at_us=1
            )
        )
    offset = take_offset(database, NOW_US)
    batch.put_inbox("c3", InboxEntry(offset, Message("i", b"", 1), qos=1), epoch=1)
    batch.write()
    stored = await database.open_session("c3")
    view = await StateView.open(looking(state))
    assert view is not None
    assert [record.client_id async for record in view.sessions()] == names
    assert [record.client_id async for record in view.sessions(after="c1")] == names[2:]
    assert await view.open_session("c3") == stored
    assert await view.open_session("nobody") is None
    (entry,) = await view.read_inbox("c3", after_offset=0, until_offset=offset, limit=9)
    assert entry.offset == offset
