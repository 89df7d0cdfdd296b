"""Looking at a broker's state in a server, beside the broker."""

from __future__ import annotations

import pytest

from perdure.errors import FormatTooNew, UsageError
from perdure.model import Cursor, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.remote import rows
from perdure.storage.remote.driver import META
from perdure.storage.remote.reader import StateReader
from perdure.storage.remote.store import RemoteDatabase
from tests.support.remote import MemoryDriver, ServerState
from tests.support.staged import Staged
from tests.unit.storage.remote.helpers import NOW_US, looking


def record(client_id: str) -> SessionRecord:
    return SessionRecord(
        client_id,
        epoch=1,
        created_at_us=NOW_US,
        expiry_s=60,
        connected=False,
        changed_at_us=NOW_US,
    )


async def test_it_sees_what_the_broker_has_and_claims_nothing() -> None:
    state = ServerState()
    database = await RemoteDatabase.open(MemoryDriver(state), now_us=NOW_US)
    batch = Staged(database)
    batch.put_session(record("c"))
    batch.put_subscription("c", Subscription("t", qos=1), epoch=1)
    batch.put_session(record("d"))
    batch.put_cursor("c", Cursor(5, 2), epoch=1)
    offsets = [batch.append(Message("t", b"%d" % n, 1), NOW_US + n) for n in range(3)]
    batch.put_inbox("c", InboxEntry(offsets[-1] + 1, Message("i", b"", 1), qos=1), epoch=1)
    last = batch.append(Message("else", b"", 1), NOW_US + 9)
    batch.write()
    stored = await database.open_session("c")

    # The driver of the broker stays the writer: another one could not claim.
    driver = looking(state)
    reader = await StateReader.open(driver)
    assert reader is not None
    assert reader.last_offset >= last
    assert [found.client_id async for found in reader.sessions()] == ["c", "d"]
    assert await reader.open_session("c") == stored
    assert await reader.open_session("nobody") is None
    page = await reader.read_queue("c", after_offset=0, until_offset=last, limit=2, bytes_max=0)
    assert [message.offset for message in page.messages] == offsets[:2]
    rest = await reader.read_queue(
        "c", after_offset=page.through_offset, until_offset=last, limit=2, bytes_max=0
    )
    assert ([message.offset for message in rest.messages], rest.through_offset) == (
        offsets[2:],
        last,
    )
    (found,) = await reader.read_inbox("c", after_offset=0, until_offset=last, limit=9)
    assert found.offset == offsets[-1] + 1
    with pytest.raises(UsageError):
        await reader.read(["t"], after_offset=0, until_offset=last, limit=1)
    await database.stop()


async def test_a_server_without_a_state() -> None:
    driver = looking(ServerState())
    assert await StateReader.open(driver) is None


async def test_a_state_of_a_later_release() -> None:
    state = ServerState()
    database = await RemoteDatabase.open(MemoryDriver(state), now_us=NOW_US)
    await database.stop()
    state.tables[META][rows.NOBODY][rows.FORMAT_KEY] = b"\xff"
    driver = looking(state)
    with pytest.raises(FormatTooNew):
        await StateReader.open(driver)
