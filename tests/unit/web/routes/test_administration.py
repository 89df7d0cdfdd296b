"""The operations over HTTP: forms of requests and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure.admin.rights import Principal, Role
from perdure.admin.table import OPERATIONS
from perdure.server.administration.socket import AdminServer
from tests.unit.server.administration.fake_service import FakeBroker
from tests.unit.web.asgi import ask

pytest.importorskip("starlette")
from perdure.pipeline.protocol import API
from perdure.web.context import Context
from perdure.web.principals import Principals


@pytest_asyncio.fixture
async def broker(tmp_path: Path, context: Context) -> AsyncIterator[FakeBroker]:
    """A broker that knows the client ``a/é``."""
    found = FakeBroker("a/é")
    (tmp_path / "db").mkdir(exist_ok=True)
    server = AdminServer(found.service, tmp_path / "db")
    await server.start()
    yield found
    await context.admin.close()
    await server.stop()


def become(context: Any, role: Role, **more: Any) -> None:
    """Have every request come from a principal."""

    class Source:
        async def resolve(self, _scope: object) -> Principal:
            return Principal("p", role, source="test", **more)

    context.principals = Principals([Source()])


CLIENT = f"{API}/sessions/a%2F%C3%A9"


async def test_a_client_id_may_hold_what_it_likes(app: Any, broker: FakeBroker) -> None:
    got = await ask(app, CLIENT)
    assert (got.status, got.json["client_id"]) == (200, "a/é")
    assert (await ask(app, f"{API}/sessions/a/%C3%A9")).status == 404
    assert (await ask(app, f"{API}/sessions/%FF")).status == 404
    assert (await ask(app, f"{API}/sessions/")).status == 404
    got = await ask(app, f"{API}/sessions/{'%' * 3}")
    assert (got.status, got.json["message"]) == (404, "there is no session '%%%'")


async def test_lists_and_their_cursors(app: Any, broker: FakeBroker) -> None:
    broker.rows = 2
    got = await ask(app, f"{API}/sessions", query="client_id~=x&connected=true&limit=2")
    assert got.json["next_cursor"] == "2"
    asked: Any = broker.asked[0]
    assert (asked.client_id_like, asked.connected, asked.limit) == ("x", True, 2)
    got = await ask(app, f"{API}/sessions", query="cursor=2&fields=client_id,,node")
    assert got.json["items"] == [{"client_id": "c1", "node": "n"}]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "limit=1001",
        "what=1",
        "limit=1&limit=2",
        "connected=perhaps",
        "fields=client_id,nonsense",
        f"fields={'client_id,' * 65}",
    ],
)
async def test_a_query_that_is_wrong_is_said_to_be(
    app: Any, broker: FakeBroker, query: str
) -> None:
    got = await ask(app, f"{API}/sessions", query=query)
    assert (got.status, got.json["code"]) == (400, "bad_request")
    assert got.json["request_id"] == got.headers["x-request-id"]
    assert broker.asked == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"kind": "client_id"}', b'{"x": 1}', b"\xff", b'{"kind": ' + b"[" * 9_999],
)
async def test_a_body_that_is_wrong_is_said_to_be(
    app: Any, broker: FakeBroker, body: bytes
) -> None:
    got = await ask(app, f"{API}/bans", method="POST", body=body)
    assert (got.status, got.json["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("path", "query", "hint"),
    [
        ("sessions", "state=away", "state: connected | "),
        ("sessions", "limit=0", "limit: integer, 1 to 1000"),
        ("sessions", "nonsense=1", "it takes limit, cursor, sort, prefix, client_id~, "),
        ("subscriptions/match", "", "topic: string, 1 to 65535 characters"),
        ("listeners", "nonsense=1", "it takes nothing"),
    ],
)
async def test_a_refusal_says_what_would_do(
    app: Any, broker: FakeBroker, path: str, query: str, hint: str
) -> None:
    got = await ask(app, f"{API}/{path}", query=query)
    assert (got.status, got.json["code"]) == (400, "bad_request")
    assert got.json["details"]["hint"].startswith(hint)


async def test_a_change(app: Any, broker: FakeBroker) -> None:
    body = b'{"kind": "client_id", "value": "c", "reason": "r"}'
    got = await ask(app, f"{API}/bans", method="POST", body=body)
    assert (got.status, got.json["closed"]) == (201, 1)
    (record,) = broker.audited
    assert (record.principal, record.source, record.peer) == ("token", "token", "127.0.0.1")
    assert record.request_id == got.headers["x-request-id"]
    got = await ask(app, f"{CLIENT}/connection", method="DELETE")
    assert got.json == {"client_id": "a/é", "action": "kicked"}


async def test_an_answer_that_the_client_has_is_not_sent_again(
    app: Any, broker: FakeBroker
) -> None:
    first = await ask(app, CLIENT)
    again = await ask(app, CLIENT, headers={"if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


async def test_every_operation_asks_for_its_right(
    app: Any, context: Any, broker: FakeBroker
) -> None:
    roles: tuple[Role, ...] = ("viewer", "operator", "admin")
    for operation in OPERATIONS.values():
        if operation.http is None:
            continue
        path = API + operation.http.path.replace("{client_id}", "a%2F%C3%A9").replace("{", "")
        method = operation.http.method
        for role in roles:
            become(context, role)
            got = await ask(app, path.replace("}", ""), method=method)
            is_below = roles.index(role) < roles.index(operation.right)
            assert (got.status == 403) is is_below, (operation.name, role)
            assert got.status < 500
        context.principals = Principals([])
        got = await ask(app, path, method=method)
        assert (got.status, got.json["code"]) == (401, "unauthorized"), operation.name


async def test_scopes_and_topics_narrow(app: Any, context: Any, broker: FakeBroker) -> None:
    become(context, "admin", scopes=("sessions.show",))
    assert (await ask(app, CLIENT)).status == 200
    assert (await ask(app, f"{API}/sessions")).status == 403
    become(context, "admin", topic_filters=("a/#",))
    assert (await ask(app, CLIENT)).status == 403


async def test_no_broker(app: Any) -> None:
    got = await ask(app, f"{API}/sessions")
    assert (got.status, got.json["code"]) == (503, "broker_unavailable")
    assert "retry-after" in got.headers
