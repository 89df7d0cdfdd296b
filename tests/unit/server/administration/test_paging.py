"""Pages of lists in memory cost what a page costs."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.admin.problems import Refused
from perdure.broker.auth.bans import Ban, BanList
from perdure.server.administration import bans as operations
from perdure.server.administration.bans import BanOperations
from perdure.server.administration.listing import encode_cursor
from perdure.server.administration.paging import SORTED_MAX, in_order
from perdure.server.bans import BanKeeper, ban_row
from tests.support.clock import VirtualClock


def test_very_many_names_are_put_in_order_in_runs() -> None:
    for count in (0, 1, SORTED_MAX, 3 * SORTED_MAX + 1):
        names = [f"u{number * 7919 % 65_537}" for number in range(count)]
        assert in_order(names) == sorted(names)


class Enforcer:
    """What the keeper asks."""

    def __init__(self, count: int) -> None:
        self.bans = BanList(
            Ban("client_id", f"c{number * 7 % count:03}", since_us=number)
            for number in range(count)
        )

    def temporary(self) -> list[Any]:
        """None."""
        return []


async def test_a_page_of_bans_makes_its_own_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(ban: Any) -> Any:
        made.append(ban.value)
        return ban_row(ban)

    monkeypatch.setattr(operations, "ban_row", counted)
    clock = VirtualClock()
    keeper = BanKeeper(Enforcer(100), None, clock)  # type: ignore[arg-type]
    asked = BanOperations(keeper, clock)
    first = await asked.list_page(operations.ListBans(limit=2), None)  # type: ignore[arg-type]
    then = operations.ListBans(limit=2, cursor=first.next_cursor or "")
    second = await asked.list_page(then, None)  # type: ignore[arg-type]
    assert made == ["c000", "c001", "c002", "c003"]
    assert [row.value for row in second.items] == ["c002", "c003"]
    assert first.estimated_total == 100
    latest = await asked.list_page(
        operations.ListBans(limit=1, sort="-since"),
        None,  # type: ignore[arg-type]
    )
    assert latest.items[0].since_us == 99
    assert keeper.ordered() is keeper.ordered(), "put in order once"
    for cursor in ("x", "[]", "[" * 9_999):
        wrong = operations.ListBans(sort="-since", cursor=encode_cursor(cursor))
        with pytest.raises(Refused, match="not one of this order"):
            await asked.list_page(wrong, None)  # type: ignore[arg-type]
