"""The list of sessions as a page: how far it looks for the first one that is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure.admin.records.sessions import ListSessions, SessionPage, SessionRow
from perdure.server.administration.socket import AdminServer
from tests.unit.server.administration.fake_service import SESSION, FakeBroker
from tests.unit.web.asgi import ask

pytest.importorskip("jinja2")
from perdure.web.dashboard import sessions as pages

WANTED = "client_id=needle"


class Sparse(FakeBroker):
    """Has the wanted session on its fourth page, and nothing on those before."""

    async def sessions(self, request: ListSessions, _call: object) -> SessionPage:
        self.take(request)
        number = int(request.cursor or 0)
        if number < 3:
            return SessionPage(items=[], next_cursor=str(number + 1))
        return SessionPage(items=[SessionRow(client_id="needle", **SESSION)])


@pytest_asyncio.fixture
async def broker(tmp_path: Path, context: Any) -> AsyncIterator[Sparse]:
    found = Sparse()
    server = AdminServer(found.service, tmp_path / "db")
    await server.start()
    yield found
    await context.admin.close()
    await server.stop()


async def test_a_page_looks_further_until_it_has_something(app: Any, broker: Sparse) -> None:
    got = await ask(app, "/ui/sessions", query=WANTED)
    assert b"/ui/sessions/needle" in got.body
    asked: list[Any] = broker.asked
    assert [each.cursor for each in asked] == ["", "1", "2", "3"]
    assert {each.client_id_like for each in asked} == {"needle"}


async def test_a_page_that_looked_for_long_asks_whether_to_go_on(
    app: Any, broker: Sparse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FURTHER_S", 0.0)
    got = await ask(app, "/ui/sessions", query=WANTED)
    assert len(broker.asked) == 1
    assert b"Look further" in got.body
    assert b"cursor=1" in got.body
