"""Sessions as an operator sees them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.admin.records.sessions import LiveView, State
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import (
    BackfillProgress,
    Cursor,
    InboxEntry,
    Message,
    SessionRecord,
    Subscription,
    Will,
)
from perdure.server.inspect import describe, session_details, session_row, state_of
from perdure.session import pending_pages
from perdure.storage.memory import MemoryDatabase
from tests.support.staged import Staged, take_offset

NOW = 1_700_000_000_000_000
OFFLINE = SessionRecord(
    "a", epoch=1, created_at_us=NOW - 9, expiry_s=60, connected=False, changed_at_us=NOW - 5
)


def shown(record: object) -> dict[str, Any]:
    """As it is on the wire."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found


@pytest.mark.parametrize(
    ("connected", "expires_at_us", "running", "state"),
    [
        (True, 0, True, "connected"),
        (True, 0, False, "offline"),
        (False, 0, True, "offline"),
        (False, NOW + 1, True, "offline"),
        (False, NOW, True, "expired"),
    ],
)
def test_states(connected: bool, expires_at_us: int, running: bool, state: State) -> None:
    record = msgspec.structs.replace(OFFLINE, connected=connected, expires_at_us=expires_at_us)
    assert state_of(record, NOW, running=running) == state


def test_rows_have_times_for_people_and_programs() -> None:
    record = msgspec.structs.replace(OFFLINE, expires_at_us=NOW + 1, username="ada", protocol=5)
    row = shown(session_row(record, NOW, running=True))
    assert row["changed_at"] == "2023-11-14T22:13:19.999995Z"
    assert row["changed_at_us"] == NOW - 5
    assert row["expires_at"] == "2023-11-14T22:13:20.000001Z"
    assert (row["username"], row["protocol"], row["expiry_s"]) == ("ada", "5.0", 60)
    never = msgspec.structs.replace(OFFLINE, expiry_s=SESSION_EXPIRY_NEVER_S)
    row = shown(session_row(never, NOW, running=True))
    assert (row["expiry_s"], row["expires_at"], row["username"]) == (None, None, None)
    assert row["protocol"] == "3.1.1"


async def details(database: MemoryDatabase, live: LiveView | None = None) -> dict[str, Any]:
    stored = await database.open_session("a")
    assert stored is not None
    return shown(await describe(database, stored, NOW, running=True, live=live))


async def test_details_count_what_is_owed() -> None:
    database = MemoryDatabase()
    batch = Staged(database)
    batch.put_session(OFFLINE)
    batch.put_subscription("a", Subscription("t/#", qos=1), epoch=1)
    offsets = [batch.append(Message(f"t/{n}", b"x", 1), NOW) for n in range(5)]
    batch.append(Message("other", b"x", 1), NOW)
    at = take_offset(database, NOW)
    batch.put_inbox("a", InboxEntry(at, Message("r", b"", 1), qos=1), epoch=1)
    batch.put_inbox("a", InboxEntry(at + 1, None, qos=1), epoch=1)
    cursor = Cursor(offset=offsets[0], serial=1, settled=(3,), released=(2,), sent=4)
    batch.put_cursor("a", cursor, epoch=1)
    batch.put_awaiting_release("a", 7, epoch=1)
    batch.write()
    take_offset(database, NOW)
    found = await details(database)
    # Four after the cursor, one addressed, one of them acknowledged out of order.
    assert (found["owed_messages"], found["owed_is_exact"]) == (4, True)
    assert found["unacknowledged"] == 2
    assert found["awaiting_release"] == [7]
    assert found["awaiting_completion"] == 1
    assert found["acked_offset"] == offsets[0]
    assert [sub["filter"] for sub in found["subscriptions"]] == ["t/#"]
    assert found["live"] is None
    assert found["will"] is None


async def test_details_say_when_a_count_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    database = MemoryDatabase()
    batch = Staged(database)
    batch.put_session(OFFLINE)
    batch.append(Message("t", b"x", 1, publisher="a"), NOW)
    batch.append(Message("t", b"x", 1, publisher="b"), NOW)
    batch.put_subscription("a", Subscription("t", qos=1, no_local=True), epoch=1)
    batch.write()
    found = await details(database)
    assert (found["owed_messages"], found["owed_is_exact"]) == (1, True)
    monkeypatch.setattr(pending_pages, "LOOKED_AT_MAX", 1)
    found = await details(database)
    assert (found["owed_messages"], found["owed_is_exact"]) == (2, False)


async def test_details_of_subscriptions_will_and_memory() -> None:
    database = MemoryDatabase()
    batch = Staged(database)
    will = Will("w", b"gone", qos=1, delay_s=5)
    batch.put_session(msgspec.structs.replace(OFFLINE, will=will, will_at_us=NOW))
    progress = BackfillProgress(True, "", 0, 0)
    batch.put_subscription(
        "a", Subscription("f", "g", qos=2, identifier=3, backfill=progress), epoch=1
    )
    batch.put_subscription("a", Subscription("old", until_offset=1), epoch=1)
    batch.write()
    found = await details(database, live=LiveView(1, 10, 2, False, True))
    (sub,) = found["subscriptions"]
    assert (sub["filter"], sub["qos"], sub["identifier"]) == ("$share/g/f", 2, 3)
    assert sub["backfilling"] == "retained"
    assert (found["will"]["topic"], found["will"]["payload_bytes"]) == ("w", 4)
    assert found["will"]["due_at"] == "2023-11-14T22:13:20.000000Z"
    assert found["live"]["inflight_max"] == 10
    assert found["live"]["paused"]


async def test_details_name_the_message_that_is_waited_for() -> None:
    database = MemoryDatabase()
    batch = Staged(database)
    batch.put_session(OFFLINE)
    batch.put_subscription("a", Subscription("t/#", qos=1), epoch=1)
    told = (Message(f"t/{n}", b"x", 1, published_at_us=NOW) for n in range(3))
    offsets = [batch.append(message, NOW) for message in told]
    batch.put_cursor("a", Cursor(offset=offsets[0], serial=1, sent=3, settled=(3,)), epoch=1)
    batch.write()
    head = (await details(database))["oldest_unacknowledged"]
    assert head["topic"] == "t/1"
    assert head["published_at"]
    names = ("serial", "packet_id", "awaits", "sent_after", "settled_after", "is_blocking")
    assert [head[name] for name in names] == [2, 2, "PUBACK or PUBREC", 1, 1, False]
    batch = Staged(database)
    batch.put_cursor("a", Cursor(offset=offsets[2], serial=3, sent=3), epoch=1)
    batch.write()
    assert (await details(database))["oldest_unacknowledged"] is None


async def test_no_session_has_no_details() -> None:
    assert await session_details(MemoryDatabase(), "nobody", NOW, running=True) is None
