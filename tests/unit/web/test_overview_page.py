"""The first page: of the node that answers, of another one, of all; and what it says of drops."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from perdure.admin.records.node import GetOverview, ListNodes, Node, NodePage, Overview
from perdure.server.administration.socket import AdminServer
from tests.unit.server.administration.fake_service import FakeBroker
from tests.unit.web.asgi import ask

pytest.importorskip("jinja2")

PART = {"hx-request": "true"}


class Nodes(FakeBroker):
    """A node, and others of its cluster.

    Attributes:
        others: names and states.
        more: of each overview.
    """

    def __init__(self) -> None:
        super().__init__()
        self.others: dict[str, str] = {}
        self.more: dict[str, Any] = {}

    def handlers(self) -> Mapping[Any, Any]:
        return {**super().handlers(), ListNodes: self.nodes}

    async def overview(self, request: GetOverview, call: object) -> Overview:
        return msgspec.structs.replace(await super().overview(request, call), **self.more)

    async def nodes(self, _request: ListNodes, _call: object) -> NodePage:
        known = {"n": "running", **self.others}
        rows = [
            Node(
                name=name,
                is_self=name == "n",
                state=state,
                version=None,
                started_at=None,
                connections=None,
                sessions_connected=None,
            )
            for name, state in known.items()
        ]
        return NodePage(items=rows)


@pytest_asyncio.fixture
async def broker(tmp_path: Path, context: Any) -> AsyncIterator[Nodes]:
    found = Nodes()
    server = AdminServer(found.service, tmp_path / "db")
    await server.start()
    yield found
    await context.admin.close()
    await server.stop()


async def page(app: Any, query: str = "", **more: Any) -> str:
    got = await ask(app, "/ui/", query=query, **more)
    assert got.status == 200, got.body
    text: str = got.body.decode()
    return text


async def test_a_broker_by_itself_has_nothing_to_choose(app: Any, broker: Nodes) -> None:
    text = await page(app)
    assert "<select" not in text
    assert 'data-live="sessions_connected"' in text
    assert "data-keep" not in text
    assert "Behind the log" not in text


async def test_another_node_is_no_part_of_what_the_stream_tells(app: Any, broker: Nodes) -> None:
    broker.others = {"n2": "running", "n3": "expelled"}
    own = await page(app, "node=n")
    assert re.findall(r"<option [^>]*>([^<]*)", own) == [
        "n, live",
        "n2",
        "n3, expelled",
        "all nodes",
    ]
    assert "data-chart" in own
    assert 'data-history="/ui/history"' in own
    other = await page(app, "node=n2")
    assert '<option value="n2" selected>' in other
    assert 'data-keep="/ui/?node=n2"' in other
    assert "data-live" not in other
    assert 'data-history="/ui/history?node=n2"' in other
    assert 'data-copy="perdure status --node n2"' in other
    every = await page(app, "node=*")
    assert 'data-keep="/ui/?node=%2A"' in every
    assert 'href="/ui/?node=n3"' in every
    assert 'data-history="/ui/history?node=%2A"' in every
    assert "perdure status --node &#39;*&#39;" in every
    part = await page(app, "node=n2", headers=PART)
    assert part.lstrip().startswith('<div id="numbers"')


async def test_what_is_not_known_or_not_well_is_said(app: Any, broker: Nodes) -> None:
    broker.others = {"n2": "left"}
    broker.more = {"state": "left"}
    assert "n2 is no member of the cluster (left): these are its last numbers." in await page(
        app, "node=n2"
    )
    broker.more = {"unheard": ["n4", "n5"], "storage": "stalled", "storage_reason": "n2: Kafka"}
    text = await page(app, "node=*")
    assert "n2: Kafka. Not in it: n4, n5, of which no numbers were heard." in text
    assert 'class="verdict bad"' in text
    assert (await ask(app, "/ui/", query="node=n9")).status == 404


async def test_what_nobody_wanted_was_not_dropped(app: Any, broker: Nodes) -> None:
    broker.more = {"messages_dropped_by": {"expired": 0, "no_subscriber": 1_200}}
    text = await page(app)
    assert "Nothing. A message that a limit drops" in text
    assert "1\u2009200 messages came while nobody subscribed" in text
    broker.more = {"messages_dropped_by": {"queue_full": 3, "no_subscriber": 0}}
    text = await page(app)
    assert "<dt>queue full</dt><dd>3</dd>" in text
    assert "nobody subscribed" not in text
