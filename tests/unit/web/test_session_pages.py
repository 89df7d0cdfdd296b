"""Lists as pages: how far they look for the first item that is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from perdure.admin.operation import Page
from perdure.admin.records.identity import ListAudit
from perdure.admin.records.messages import ListRetained, ReadLog
from perdure.admin.records.sessions import ListSessions, SessionPage, SessionRow
from perdure.admin.records.subscriptions import ListSubscriptions, Match, MatchTopic
from perdure.server.administration.socket import AdminServer
from tests.unit.server.administration.fake_service import SESSION, SUBSCRIPTION, FakeBroker
from tests.unit.web.asgi import ask

pytest.importorskip("jinja2")
from perdure.web.dashboard import desk

WANTED = "client_id=needle"


class Sparse(FakeBroker):
    """Has the wanted session on its fourth page, and nothing on those before."""

    def __init__(self) -> None:
        super().__init__()
        self.matches: list[Match] = []

    def handlers(self) -> Mapping[Any, Any]:
        empty = dict.fromkeys((ListSubscriptions, MatchTopic, ListRetained, ReadLog, ListAudit))
        return {**super().handlers(), **dict.fromkeys(empty, self.nothing)}

    async def nothing(self, request: Any, _call: object) -> Page[Any]:
        """A list of which one page is not looked at yet."""
        found = self.matches if isinstance(request, MatchTopic) else []
        return Page(items=found, next_cursor=None if request.cursor else "1")

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
    monkeypatch.setattr(desk, "FURTHER_S", 0.0)
    got = await ask(app, "/ui/sessions", query=WANTED)
    assert len(broker.asked) == 1
    assert b"Look further" in got.body
    assert b"cursor=1" in got.body


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("subscriptions", "filter=x"),
        ("subscriptions/match", "topic=t"),
        ("retained", "filter=x"),
        ("messages", "filter=x"),
        ("audit", "resource=users"),
    ],
)
async def test_what_was_not_looked_at_is_not_said_to_be_empty(
    app: Any, broker: Sparse, monkeypatch: pytest.MonkeyPatch, path: str, query: str
) -> None:
    monkeypatch.setattr(desk, "FURTHER_S", 0.0)
    got = await ask(app, f"/ui/{path}", query=query)
    assert got.status == 200
    assert b"ook further" in got.body
    assert b"cursor=1" in got.body
    for denied in (
        b"Nobody gets it",
        b"No subscription",
        b"No retained",
        b"No change",
        b"recorded then",
    ):
        assert denied not in got.body


@pytest.mark.parametrize(
    ("query", "is_told"), [("", True), ("filter=%2B/a", True), ("filter=$x/%23", False)]
)
async def test_what_a_wildcard_leaves_out_is_told(
    app: Any, broker: Sparse, monkeypatch: pytest.MonkeyPatch, query: str, is_told: bool
) -> None:
    """An empty filter is ``#``, which matches no topic that begins with ``$``."""
    monkeypatch.setattr(desk, "FURTHER_S", 0.0)
    got = await ask(app, "/ui/retained", query=query)
    assert (b"begins with <code>$</code>" in got.body) == is_told


async def test_who_gets_a_topic_counts_over_its_pages(app: Any, broker: Sparse) -> None:
    got = await ask(app, "/ui/subscriptions/match", query="topic=t&seen=3&cursor=1")
    assert b"3 subscriptions" in got.body
    got = await ask(app, "/ui/subscriptions/match", query="topic=t&cursor=1")
    assert b"Nobody gets it" in got.body


async def test_who_gets_a_topic_is_shown_page_by_page(app: Any, broker: Sparse) -> None:
    """A topic that 100,000 sessions get must not fill the page by itself."""
    match = Match(
        client_id="c",
        connected=False,
        node=None,
        group=None,
        allowed=None,
        **msgspec.structs.asdict(SUBSCRIPTION),
    )
    broker.matches = [match]
    got = await ask(app, "/ui/subscriptions/match", query="topic=t")
    assert b"Show more" in got.body
    assert b"cursor=1" in got.body
    assert b"hx-trigger" not in got.body
