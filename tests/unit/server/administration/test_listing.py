"""Pages of sessions: filters, cursors, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.sessions import ListSessions
from perdure.model import SessionRecord
from perdure.server.administration import listing
from perdure.server.administration.listing import LiveTable, list_sessions
from perdure.server.inspect import session_row
from perdure.storage.memory import MemoryDatabase
from tests.support.staged import Staged

NOW = 1_700_000_000_000_000
NAMES = ["a", "p", "pump", "pump-1", "pump-2", "pump/3", "pv", "x" * 70, "é", "\U0001f600"]


class Live:
    """A connected session."""

    def __init__(self, record: SessionRecord, *, stored: bool) -> None:
        self.record = msgspec.structs.replace(record, connected=True)
        self.stored = stored
        self.subs: dict[str, Any] = {"t": None}


def record(client_id: str, **more: Any) -> SessionRecord:
    made = SessionRecord(
        client_id, epoch=1, created_at_us=NOW, expiry_s=60, connected=False, changed_at_us=NOW
    )
    return msgspec.structs.replace(made, **more)


@pytest.fixture
def database() -> MemoryDatabase:
    found = MemoryDatabase()
    batch = Staged(found)
    for number, name in enumerate(NAMES):
        user = "ada" if number % 2 else ""
        batch.put_session(
            record(name, username=user, created_at_us=NOW + number, connected=name == "pump")
        )
    batch.write()
    return found


@pytest.fixture
def live() -> LiveTable:
    held = [Live(record(name), stored=False) for name in ("b", "pump-1x", "zz")]
    held.append(Live(record("pump"), stored=True))
    return LiveTable({one.record.client_id: one for one in held}, lambda: 0, node="n1")


async def names(database: MemoryDatabase, live: LiveTable | None = None, **asked: Any) -> list[str]:
    """All pages together."""
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        request = ListSessions(**{"limit": 3, **asked, "cursor": cursor})
        page = await list_sessions(database, request, NOW, live=live)
        assert len(page.items) <= request.limit
        found += [row.client_id for row in page.items]
        cursor = page.next_cursor
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 13, 1000])
@pytest.mark.parametrize("scan_max", [1, 3, 2_000])
async def test_pages_are_the_whole_in_order(
    database: MemoryDatabase,
    live: LiveTable,
    limit: int,
    scan_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "SCAN_MAX", scan_max)
    whole = sorted([*NAMES, "b", "pump-1x", "zz"], key=str.encode)
    assert await names(database, live, limit=limit) == whole
    assert await names(database, limit=limit) == NAMES
    with_prefix = [name for name in whole if name.startswith("pump-")]
    assert await names(database, live, limit=limit, prefix="pump-") == with_prefix
    assert await names(database, live, limit=limit, connected=True) == [
        "b",
        "pump",
        "pump-1x",
        "zz",
    ]
    found = await names(database, live, limit=limit, connected=True, prefix="pu")
    assert found == ["pump", "pump-1x"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"client_id_like": "-"}, ["pump-1", "pump-1x", "pump-2"]),
        ({"client_id_like": "/"}, ["pump/3"]),
        ({"prefix": "pump", "username": "ada"}, ["pump-1", "pump/3"]),
        ({"prefix": "p", "connected": False, "username": ""}, ["pump-2", "pv"]),
        ({"state": "connected", "username": ""}, ["b", "pump", "pump-1x", "zz"]),
        ({"node": "n1"}, ["b", "pump", "pump-1x", "zz"]),
        ({"node": "n2"}, []),
        ({"created_from": str(NOW + 2), "created_until": str(NOW + 3)}, ["pump-1"]),
        ({"created_from": "2030-01-01T00:00:00Z"}, []),
        ({"prefix": "\U0001f600"}, ["\U0001f600"]),
    ],
)
async def test_filters(
    database: MemoryDatabase, live: LiveTable, asked: dict[str, Any], expected: list[str]
) -> None:
    assert await names(database, live, **asked) == expected


async def test_a_page_is_bounded_work(
    database: MemoryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCAN_MAX", 4)
    monkeypatch.setattr(listing, "SKIPPED_PER_ROW", 2)
    monkeypatch.setattr(listing, "NAMES_AT_ONCE", 1)
    looked: list[str] = []

    def row(record: SessionRecord, *args: Any, **more: Any) -> Any:
        looked.append(record.client_id)
        return session_row(record, *args, **more)

    monkeypatch.setattr(listing, "session_row", row)
    page = await list_sessions(database, ListSessions(username="nobody"), NOW)
    assert (page.items, looked) == ([], []), "a row is made of what is shown alone"
    assert page.next_cursor == listing.encode_cursor(NAMES[3])
    page = await list_sessions(database, ListSessions(client_id_like="nothing"), NOW)
    assert page.items == []
    assert page.next_cursor == listing.encode_cursor(NAMES[7]), "that costs less, and gets further"


async def test_records_are_read_of_those_whose_name_is_wanted(
    database: MemoryDatabase, live: LiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record takes ten times what a name does."""
    read: list[str] = []
    session_records = database.session_records

    async def counted(client_ids: Sequence[str]) -> list[SessionRecord]:
        read.extend(client_ids)
        return await session_records(client_ids)

    monkeypatch.setattr(database, "session_records", counted)
    monkeypatch.setattr(database, "sessions", None)
    for at_once in (1, 2, 256):
        monkeypatch.setattr(listing, "NAMES_AT_ONCE", at_once)
        read.clear()
        found = await names(database, live, limit=100, client_id_like="-")
        assert (found, read) == (["pump-1", "pump-1x", "pump-2"], ["pump-1", "pump-2"])
        assert await names(database, live, client_id_like="p", prefix="pump-1") == found[:2]


async def test_connected_ones_are_found_without_the_store(live: LiveTable) -> None:
    class NoStore:
        def sessions(self, *, after: str = "") -> Iterator[SessionRecord]:
            raise AssertionError(after)

    page = await list_sessions(NoStore(), ListSessions(connected=True), NOW, live=live)  # type: ignore[arg-type]
    assert (len(page.items), page.estimated_total) == (4, 4)
    assert {row.node for row in page.items} == {"n1"}
    assert {row.subscription_count for row in page.items} == {1}


async def test_totals(database: MemoryDatabase, live: LiveTable) -> None:
    async def total(**asked: Any) -> int | None:
        request = ListSessions(**asked)
        page = await list_sessions(database, request, NOW, live=live, estimated_total=13)
        return page.estimated_total

    assert await total() == 13
    assert await total(connected=True) == 4
    assert await total(connected=False) == 9
    assert await total(prefix="p", limit=2) is None
    assert await total(prefix="p") == 7, "what is listed whole is counted"


async def test_very_many_are_sorted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SORTED_AT_ONCE_MAX", 10)
    now = [0]
    held = {name: Live(record(name), stored=False) for name in map(str, range(95))}
    table = LiveTable(held, lambda: now[0], node="n")
    assert await table.ids() == sorted(map(str.encode, held))
    held["new"] = Live(record("new"), stored=False)
    assert len(await table.ids()) == 95
    now[0] += listing.SNAPSHOT_US + 1
    # Whoever asks at the same time is told of the same order: it is made once.
    made: list[int] = []
    sort = listing._sorted_in_turns

    async def counted(names: list[str]) -> list[bytes]:
        made.append(len(names))
        await asyncio.sleep(0)
        return await sort(names)

    monkeypatch.setattr(listing, "_sorted_in_turns", counted)
    assert {len(ids) for ids in await asyncio.gather(*(table.ids() for _ in range(5)))} == {96}
    assert made == [96]


@pytest.mark.parametrize("asked", [{"cursor": "%"}, {"cursor": "_w"}, {"created_from": "soon"}])
async def test_what_is_refused(database: MemoryDatabase, asked: dict[str, str]) -> None:
    with pytest.raises(Refused):
        await list_sessions(database, ListSessions(**asked), NOW)
