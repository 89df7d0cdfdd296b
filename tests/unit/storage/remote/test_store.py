"""The database on a server: back-pressure, failure, what memory holds, and loops."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.errors import Fenced, StorageLocked, StorageUnavailable, UsageError
from perdure.model import Cursor, Message, SessionRecord, Subscription
from perdure.storage.remote.loops import DriverLoop
from perdure.storage.remote.store import RemoteDatabase, Settings
from perdure.testing.remote import MemoryDriver, ServerState

NOW_US = 1_700_000_000_000_000


async def opened(state: ServerState, **settings: float) -> RemoteDatabase:
    return await RemoteDatabase.open(
        MemoryDriver(state),
        now_us=NOW_US,
        settings=Settings(**settings),  # type: ignore[arg-type]
    )


def append(database: RemoteDatabase, payload: bytes = b"x", topic: str = "t") -> int:
    batch = database.batch()
    offset = batch.append(Message(topic, payload, 1, published_at_us=NOW_US), NOW_US)
    database.write(batch)
    return offset


def subscribe(database: RemoteDatabase, client_id: str, topic_filter: str = "t") -> None:
    batch = database.batch()
    batch.put_session(SessionRecord(client_id, 1, 0, 60, True, 0))
    since = database.last_offset
    batch.put_subscription(
        client_id, Subscription(topic_filter, qos=1, since_offset=since), epoch=1
    )
    database.write(batch)


async def synced(database: RemoteDatabase) -> BaseException | None:
    future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    database.begin_sync(future.set_result)
    assert not future.done()  # never before it returns
    return await future


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


async def test_memory_is_what_the_server_has_after_a_start() -> None:
    state = ServerState()
    database = await opened(state)
    subscribe(database, "c")
    batch = database.batch()
    batch.put_retained(Message("r", b"x", 1, True, offset=database.allocate_offset(NOW_US)))
    database.write(batch)
    first = append(database)
    await database.stop()
    again = await opened(state)
    assert again.retained_count == 1
    assert await again.session_count() == 1
    assert again.last_offset == first
    second = append(again)
    batch = again.batch()
    with pytest.raises(Fenced):
        batch.put_cursor("c", Cursor(), epoch=0)
    page = await again.read_queue("c", after_offset=0, until_offset=1 << 60, limit=9, bytes_max=0)
    assert [message.offset for message in page.messages] == [first, second]
    batch.put_cursor("c", Cursor(offset=first), epoch=1)
    again.write(batch)
    assert await synced(again) is None
    assert list(state.queues["c"]) == [second]
    await again.stop()


async def test_what_is_settled_before_it_is_sent_is_not_sent() -> None:
    state = ServerState()
    database = await opened(state)
    subscribe(database, "c")
    assert await synced(database) is None
    offset = append(database)
    batch = database.batch()
    batch.put_cursor("c", Cursor(offset=offset, serial=1), epoch=1)
    database.write(batch)
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


def test_a_driver_loop_runs_coroutines_for_others() -> None:
    loop = DriverLoop()

    async def name() -> str:
        return threading.current_thread().name

    assert not loop.is_here
    assert loop.wait(name()) == "store"
    loop.close()
