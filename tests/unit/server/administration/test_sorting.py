"""Pages of sessions in the order of a column: exact, or refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.sessions import ListSessions, SessionRow
from perdure.server.administration import sorting
from perdure.server.administration.listing import LiveTable
from perdure.server.administration.sorting import sessions_in_order
from perdure.storage.memory import MemoryDatabase
from tests.support.staged import Staged
from tests.unit.server.administration.test_listing import NAMES, NOW, Live, record

ORDERS = [
    sign + column
    for column in ("changed_at", "created_at", "dropped_count", "state", "subscription_count")
    for sign in ("", "-")
]
STATES = ["connected", "offline", "expired"]


@pytest.fixture
def database() -> MemoryDatabase:
    found = MemoryDatabase()
    batch = Staged(found)
    for number, name in enumerate(NAMES):
        made = record(
            name,
            username="ada" if number % 2 else "",
            created_at_us=NOW + number * 7 % 5,
            changed_at_us=NOW - number * 3 % 4,
            expires_at_us=NOW - 1 if number % 4 == 3 else 0,
            connected=name == "pump",
        )
        batch.put_session(msgspec.structs.replace(made, dropped_count=number % 3))
    batch.write()
    return found


@pytest.fixture
def live() -> LiveTable:
    held = [Live(record(name), stored=False) for name in ("b", "pump-1x", "zz")]
    held.append(Live(record("pump", changed_at_us=NOW + 9), stored=True))
    return LiveTable({one.record.client_id: one for one in held}, lambda: 0, node="n1")


async def rows(
    database: MemoryDatabase, live: LiveTable | None, **asked: Any
) -> tuple[list[SessionRow], set[int | None]]:
    """All pages together, and the totals that they told."""
    found: list[SessionRow] = []
    totals: set[int | None] = set()
    cursor: str | None = ""
    while cursor is not None:
        request = ListSessions(**{**asked, "cursor": cursor})
        page = await sessions_in_order(database, request, NOW, live=live, skew_us=5)
        assert len(page.items) <= request.limit
        assert page.next_cursor is None or len(page.items) == request.limit
        found += page.items
        totals.add(page.estimated_total)
        cursor = page.next_cursor
    return found, totals


def value(row: SessionRow, sort: str) -> tuple[int, bytes]:
    column = sort.removeprefix("-")
    if column == "state":
        return STATES.index(row.state), row.client_id.encode()
    name = f"{column}_us" if column.endswith("_at") else column
    return getattr(row, name), row.client_id.encode()


@pytest.mark.parametrize("sort", ORDERS)
@pytest.mark.parametrize(
    "asked", [{}, {"connected": True}, {"state": "offline"}, {"username": "ada"}, {"prefix": "p"}]
)
async def test_the_same_rows_as_by_name_in_another_order(
    database: MemoryDatabase,
    live: LiveTable,
    sort: Any,
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sorting, "GATHERED", 2)
    by_name, _ = await rows(database, live, limit=100, **asked)
    wanted = sorted(by_name, key=lambda row: value(row, sort), reverse=sort.startswith("-"))
    for limit in (1, 3, 100):
        found, totals = await rows(database, live, limit=limit, sort=sort, **asked)
        assert found == wanted
        assert totals == {len(wanted)}


async def test_a_stopped_broker(database: MemoryDatabase) -> None:
    found, _ = await rows(database, None, limit=4, sort="-created_at")
    assert [row.created_at_us for row in found] == sorted(
        (row.created_at_us for row in found), reverse=True
    )
    assert len(found) == len(NAMES)


async def test_too_many_are_refused_and_what_is_connected_may_be_more(
    database: MemoryDatabase, live: LiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "SCAN_MAX", 3)
    with pytest.raises(Refused, match="more than 3 sessions") as refused:
        await rows(database, live, sort="created_at")
    assert "narrow the list" in refused.value.hint
    assert len((await rows(database, live, sort="created_at", prefix="pump/"))[0]) == 1
    assert "username" not in refused.value.hint  # whoever they belong to, they are looked at
    # Names alone cost less than records.
    assert len((await rows(database, live, sort="created_at", client_id_like="/"))[0]) == 1
    assert len((await rows(database, live, sort="created_at", connected=True))[0]) == 4
    monkeypatch.setattr(sorting, "SKIPPED_PER_ROW", 1)
    with pytest.raises(Refused, match="more than 3 sessions"):
        await rows(database, live, sort="created_at", connected=True)


async def test_too_many_are_known_by_their_number(
    live: LiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Untouched(MemoryDatabase):
        def sessions(self, *, after: str = "") -> Any:
            raise AssertionError(after)

    monkeypatch.setattr(sorting, "SCAN_MAX", 3)
    request = ListSessions(limit=2, sort="created_at", username="ada")
    with pytest.raises(Refused, match="more than 3 sessions"):
        await sessions_in_order(Untouched(), request, NOW, live=live, estimated_total=4)


async def test_a_cursor_is_of_one_order(database: MemoryDatabase) -> None:
    page = await sessions_in_order(database, ListSessions(limit=2, sort="created_at"), NOW)
    assert page.next_cursor is not None
    for cursor in (page.next_cursor, "%", "W10", "eA"):
        request = ListSessions(limit=2, sort="-created_at", cursor=cursor)
        with pytest.raises(Refused, match="cursor"):
            await sessions_in_order(database, request, NOW)
