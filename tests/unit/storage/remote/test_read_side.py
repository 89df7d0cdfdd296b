"""Reading while the server is away, and what memory answers."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import UsageError
from perdure.model import Message
from tests.support.remote import ServerState
from tests.support.staged import Staged, take_offset
from tests.unit.storage.remote.helpers import NOW_US, append, opened, subscribe, synced


async def test_a_short_outage_is_nobodys_business() -> None:
    state = ServerState()
    database = await opened(state)
    subscribe(database, "c")
    assert await synced(database) is None
    state.is_down = True
    reading = asyncio.create_task(database.open_session("c"))
    await asyncio.sleep(0.05)
    assert not reading.done()
    # The driver's own connection comes back with the next claim, which a write asks for.
    state.is_down = False
    append(database)
    stored = await reading
    assert stored is not None
    assert [sub.filter for sub in stored.subscriptions] == ["t"]
    await database.stop()


async def test_a_read_sees_what_was_written_before_it() -> None:
    state = ServerState()
    database = await opened(state)
    state.gate = asyncio.Event()
    subscribe(database, "c")
    reading = asyncio.create_task(database.open_session("c"))
    await asyncio.sleep(0)
    assert not reading.done()
    state.gate.set()
    assert (await reading) is not None
    await database.stop()


async def test_what_memory_knows_needs_no_server() -> None:
    state = ServerState()
    database = await opened(state)
    subscribe(database, "c")
    offset = append(database, b"xyz")
    batch = Staged(database)
    batch.put_retained(Message("r", b"x", 1, True, offset=take_offset(database, NOW_US)))
    batch.write()
    state.gate = asyncio.Event()
    assert await database.session_count() == 1
    assert database.retained_count == 1
    assert await database.open_session("nobody") is None
    assert await database.get_retained("nothing") is None
    assert await database.next_deadline_us() == 0
    assert await database.due_sessions(NOW_US, limit=9) == []
    page = await database.read(["t"], after_offset=0, until_offset=offset, limit=9)
    assert [message.payload for message in page.messages] == [b"xyz"]
    assert database.messages_after(0) >= 1
    assert not database.has_failed
    state.gate.set()
    await database.stop()


async def test_a_log_in_a_server_has_no_streams() -> None:
    database = await opened(ServerState())
    (only,) = database.generations()
    assert database.streams(only.generation) == []
    with pytest.raises(UsageError, match="unknown"):
        database.streams(only.generation + 1)
    await database.stop()
