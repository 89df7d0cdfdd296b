"""What a database takes up at its start is what the one before it left."""

from __future__ import annotations

import pytest

from perdure.errors import FormatTooNew
from perdure.model import Cursor, Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.remote import rows
from perdure.storage.remote.driver import META
from perdure.storage.remote.reader import PAGE
from tests.support.remote import ServerState
from tests.support.staged import Staged, take_offset
from tests.unit.storage.remote.helpers import NOW_US, append, opened, subscribe, synced


async def test_memory_is_what_the_server_has_after_a_start() -> None:
    state = ServerState()
    database = await opened(state)
    subscribe(database, "c")
    batch = Staged(database)
    batch.put_retained(Message("r", b"x", 1, True, offset=take_offset(database, NOW_US)))
    batch.write()
    first = append(database)
    await database.stop()
    again = await opened(state)
    assert again.retained_count == 1
    assert await again.session_count() == 1
    assert again.last_offset == first
    second = append(again)
    stale = Batch()
    stale.put_cursor("c", Cursor(), epoch=0)
    again.submit(stale, NOW_US)
    assert stale.refused == stale.operations
    page = await again.read_queue("c", after_offset=0, until_offset=1 << 60, limit=9, bytes_max=0)
    assert [message.offset for message in page.messages] == [first, second]
    batch = Staged(again)
    batch.put_cursor("c", Cursor(offset=first), epoch=1)
    batch.write()
    assert await synced(again) is None
    assert list(state.queues["c"]) == [second]
    await again.stop()


async def test_more_than_a_page_of_each_is_taken_up() -> None:
    state = ServerState()
    database = await opened(state)
    batch = Staged(database)
    for number in range(PAGE + 1):
        batch.put_session(SessionRecord(f"c{number}", 1, 0, 60, True, 0))
        offset = take_offset(database, NOW_US)
        batch.put_retained(Message(f"r/{number}", b"x", 1, True, offset=offset))
    batch.write()
    await database.stop()
    again = await opened(state)
    assert await again.session_count() == again.retained_count == PAGE + 1
    await again.stop()


async def test_a_state_of_a_later_release_is_left_alone() -> None:
    state = ServerState()
    await (await opened(state)).stop()
    state.tables[META][rows.NOBODY][rows.FORMAT_KEY] = b"\xff"
    with pytest.raises(FormatTooNew, match="later release"):
        await opened(state)
