"""Operations on stored content filters."""

from __future__ import annotations

import pytest

from perdure.admin.problems import Refused
from perdure.admin.records.filters import DeleteFilter, GetFilter, ListFilters, PutFilter
from perdure.server.administration.filters import FilterOperations
from perdure.server.administration.service import Call
from tests.unit.server.administration.scene import Scene


async def test_filters_come_and_go(scene: Scene) -> None:
    operations = FilterOperations(scene.broker.services)
    call = Call.__new__(Call)
    made = await operations.put(PutFilter(id="hot", filter='{"t": {"$gt": 30}}'), call)
    assert (made.filter, made.state, made.changed) == ('{"t":{"$gt":30}}', "settled", 0)
    await operations.put(PutFilter(id="cold", filter="{}"), call)
    page = await operations.list_page(ListFilters(limit=1), call)
    assert [item.id for item in page.items] == ["cold"]
    page = await operations.list_page(ListFilters(cursor=page.next_cursor or ""), call)
    assert [item.id for item in page.items] == ["hot"]
    assert (await operations.get(GetFilter(id="hot"), call)).filter == made.filter
    assert (await operations.delete(DeleteFilter(id="hot"), call)).action == "deleted"
    with pytest.raises(Refused, match="no stored content filter"):
        await operations.delete(DeleteFilter(id="hot"), call)
