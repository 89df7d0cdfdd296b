"""The database on a server: back-pressure, failure, and its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.errors import StorageLocked, StorageUnavailable, UsageError
from perdure.model import Cursor
from perdure.storage.remote.store import RemoteDatabase
from tests.support.remote import MemoryDriver, ServerState
from tests.support.staged import Staged
from tests.unit.storage.remote.helpers import NOW_US, append, opened, subscribe, synced


async def test_a_sync_waits_for_the_server() -> None:
    state = ServerState()
    database = await opened(state)
    assert await synced(database) is None
    state.gate = asyncio.Event()
    append(database)
    waiting = asyncio.create_task(synced(database))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    state.gate.set()
    assert await waiting is None
    await database.stop()


async def test_it_is_full_at_half_of_what_may_wait_and_fails_past_it() -> None:
    state = ServerState()
    database = await opened(state, pending_bytes_max=100_000)
    state.gate = asyncio.Event()
    append(database, bytes(40_000))
    assert not database.is_full
    append(database, bytes(40_000))
    assert database.is_full
    assert not database.has_failed
    append(database, bytes(40_000))
    with pytest.raises(StorageUnavailable, match="takes less than is written"):
        append(database)
    await asyncio.sleep(0)
    assert database.has_failed
    state.gate.set()
    assert await database.recover()
    assert not database.is_full
    append(database)
    assert await synced(database) is None
    found = await database.read(["#"], after_offset=0, until_offset=1 << 60, limit=9)
    assert [len(message.payload) for message in found.messages] == [40_000] * 3 + [1]
    await database.stop()


async def test_an_outage_fails_writes_and_reads_and_then_all_is_there() -> None:
    state = ServerState()
    database = await opened(state, outage_max_s=0.05)
    subscribe(database, "c")
    assert await synced(database) is None
    state.is_down = True
    offset = append(database)
    assert isinstance(await synced(database), StorageUnavailable)
    with pytest.raises(StorageUnavailable):
        append(database)
    with pytest.raises(StorageUnavailable):
        await database.open_session("c")
    assert not await database.recover()
    state.is_down = False
    assert await database.recover()
    page = await database.read_queue(
        "c", after_offset=0, until_offset=1 << 60, limit=9, bytes_max=0
    )
    assert [message.offset for message in page.messages] == [offset]
    await database.stop()


async def test_what_is_settled_before_it_is_sent_is_not_sent() -> None:
    state = ServerState()
    database = await opened(state)
    subscribe(database, "c")
    assert await synced(database) is None
    offset = append(database)
    batch = Staged(database)
    batch.put_cursor("c", Cursor(offset=offset, serial=1), epoch=1)
    batch.write()
    assert await synced(database) is None
    assert state.commits[-1].appends == {}
    await database.stop()


async def test_a_second_broker_finds_the_place_taken() -> None:
    state = ServerState()
    database = await opened(state)
    with pytest.raises(StorageLocked):
        await opened(state)
    await database.stop()
    await (await opened(state)).stop()


async def test_a_loop_does_not_wait_for_itself() -> None:
    database = await opened(ServerState())
    with pytest.raises(UsageError):
        database.sync()
    await database.stop()


def test_a_loop_of_its_own_ends_with_the_store() -> None:
    database = RemoteDatabase.open_blocking(lambda: MemoryDriver(ServerState()), now_us=NOW_US)
    append(database)
    database.sync()
    assert [thread.name for thread in threading.enumerate()].count("store") == 1
    database.close()
    database.close()
    assert "store" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(StorageUnavailable):
        append(database)
