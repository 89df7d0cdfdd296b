"""A database on a server in memory, and short ways to write to it."""

from __future__ import annotations

import asyncio

from perdure.model import Message, SessionRecord, Subscription
from perdure.storage.remote.store import RemoteDatabase, Settings
from tests.support.remote import MemoryDriver, ServerState
from tests.support.staged import Staged

NOW_US = 1_700_000_000_000_000


async def opened(state: ServerState, **settings: float) -> RemoteDatabase:
    return await RemoteDatabase.open(
        MemoryDriver(state),
        now_us=NOW_US,
        settings=Settings(**settings),  # type: ignore[arg-type]
    )


def append(database: RemoteDatabase, payload: bytes = b"x", topic: str = "t") -> int:
    batch = Staged(database)
    offset = batch.append(Message(topic, payload, 1, published_at_us=NOW_US), NOW_US)
    batch.write()
    return offset


def subscribe(database: RemoteDatabase, client_id: str, topic_filter: str = "t") -> None:
    batch = Staged(database)
    batch.put_session(SessionRecord(client_id, 1, 0, 60, True, 0))
    since = database.last_offset
    batch.put_subscription(
        client_id, Subscription(topic_filter, qos=1, since_offset=since), epoch=1
    )
    batch.write()


async def synced(database: RemoteDatabase) -> BaseException | None:
    future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    database.begin_sync(future.set_result)
    assert not future.done()  # never before it returns
    return await future


def looking(state: ServerState) -> MemoryDriver:
    """A driver that is connected and claims nothing."""
    driver = MemoryDriver(state)
    driver._is_connected = True
    return driver
