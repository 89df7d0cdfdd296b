"""Every route with every kind of credentials.

The cases come from the routes that are served, so that a new one cannot escape them; which routes
anybody may have, and which change something for a viewer, is written down here once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from perdure.admin.rights import Principal, Role
from perdure.admin.table import OPERATIONS
from perdure.identity import passwords
from perdure.identity.ledger import Actor
from perdure.identity.service import Identity
from perdure.pipeline.protocol import API, LOG_PATH
from perdure.server.administration.socket import AdminServer
from tests.support.clock import VirtualClock
from tests.unit.server.administration.fake_service import FakeBroker
from tests.unit.web.asgi import TOKEN, Answer, ask

ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "admin")
PASSWORD: Final = "correct horse battery"
HOST: Final = "broker:18083"
LOCAL: Final = Actor(Principal("root", "admin", source="socket"))
HOUR_US: Final = 3_600_000_000
DOCUMENT: Final = Path(__file__).parents[3] / "docs/reference/openapi.json"

PUBLIC: Final = {
    ("GET", "/"),
    ("GET", "/ui"),
    ("GET", "/ui/login"),
    ("POST", "/ui/login"),
    ("GET", "/ui/setup"),
    ("POST", "/ui/setup"),
    ("GET", "/ui/static/{tag}/{name}"),
    ("GET", f"{API}/error-codes"),
    ("GET", f"{API}/livez"),
    ("GET", f"{API}/openapi.json"),
    ("GET", f"{API}/readyz"),
    ("GET", f"{API}/status"),
    ("GET", f"{API}/version"),
    ("POST", f"{API}/login"),
    ("POST", f"{API}/setup"),
}
"""What needs no credentials."""

CHANGES_NOTHING: Final = {
    f"{API}/logout",
    f"{LOG_PATH}/bound",
    f"{LOG_PATH}/read",
    f"{LOG_PATH}/slices",
}
"""Where a viewer may POST: it ends a login of its own, or asks what is too long for a query."""

UNDESCRIBED: Final = {
    ("GET", f"{API}/openapi.json"),
    ("GET", f"{API}/cluster/checkpoint"),
    ("GET", f"{LOG_PATH}/read"),
    ("POST", f"{LOG_PATH}/bound"),
    ("POST", f"{LOG_PATH}/cursors"),
    ("POST", f"{LOG_PATH}/read"),
    ("POST", f"{LOG_PATH}/runs"),
    ("POST", f"{LOG_PATH}/slices"),
}
"""What is a protocol of our own between nodes and with Spark, or no JSON."""

ADMINS: Final = {
    "api_keys.list",
    "audit.list",
    "cluster.checkpoint",
    "dashboard.access",
    "dashboard.audit",
    "dashboard.events.jsonl",
    "dashboard.{trace_id}",
    "traces.read",
    "users.get",
    "users.list",
}
OPERATORS: Final = {
    "acl.text",
    "credentials.get",
    "credentials.list",
    "dashboard.clients",
    "dashboard.tokens",
    "dashboard.traces",
    "tokens.list",
    "traces.list",
}
"""What not every viewer may read."""


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("argon2")
    monkeypatch.setattr(passwords, "TIME_COST", 1)
    monkeypatch.setattr(passwords, "MEMORY_KIB", 8)


class Served:
    """An application with all its routes, a broker behind it, and who may use it."""

    def __init__(self, context: Any, broker: FakeBroker, clock: VirtualClock) -> None:
        from perdure.web.app import all_routes, make_app

        self.context, self.broker, self.clock = context, broker, clock
        self.identity: Identity = context.identity
        self.routes = all_routes(context)
        self.app = make_app(context)

    async def send(self, route: Any, method: str = "", **more: Any) -> Answer:
        path = re.sub(r"\{client_id\}", "a%2F%C3%A9", route.path)
        path = re.sub(r"\{(database)\}", "log", path)
        more = {"token": None, "host": HOST, "leave_after": 1, **more}
        return await ask(
            self.app, re.sub(r"\{\w+\}", "x", path), method=method or route.method, **more
        )

    def protected(self) -> list[Any]:
        return [each for each in self.routes if each.right is not None]

    def key(self, role: str = "admin", **more: Any) -> dict[str, str]:
        _, presented = self.identity.keys.add("k", role, LOCAL, **more)
        return {"authorization": f"Bearer {presented}"}

    async def login(self, role: str) -> dict[str, str]:
        if self.identity.users.find(role) is None:
            await self.identity.add_user(role, role, PASSWORD, LOCAL)
        presented, _ = await self.identity.login(role, PASSWORD, LOCAL)
        return {"cookie": f"perdure_login={presented}"}

    async def csrf(self, cookie: dict[str, str]) -> str:
        answer = await ask(self.app, f"{API}/me", token=None, headers=cookie)
        csrf: str = answer.json["csrf_token"]
        return csrf

    def nothing_was_done(self) -> bool:
        return not self.broker.asked and not self.broker.audited


@pytest_asyncio.fixture
async def served(tmp_path: Path, context: Any) -> AsyncIterator[Served]:
    clock = VirtualClock()
    context.identity.ledger.clock = clock
    broker = FakeBroker("a/é")
    server = AdminServer(broker.service, tmp_path / "db")
    await server.start()
    yield Served(context, broker, clock)
    await context.admin.close()
    await server.stop()


def test_what_each_route_asks_for_is_what_was_reviewed(served: Served) -> None:
    routes = served.routes
    assert {(each.method, each.path) for each in routes if each.right is None} == PUBLIC
    for each in served.protected():
        what = f"{each.method} {each.path}"
        assert each.operation, f"{what}: scopes can't name it"
        if each.method == "GET":
            wanted = (
                "admin" if each.operation in ADMINS
                else "operator" if each.operation in OPERATORS
                else "viewer"
            )  # fmt: skip
            assert each.right == wanted, what
        elif each.path not in CHANGES_NOTHING:
            assert each.right in ("operator", "admin"), what
    for operation in OPERATIONS.values():
        if operation.changes:
            assert operation.right != "viewer", operation.name


def test_the_document_has_each_route_and_says_who_needs_no_credentials(served: Served) -> None:
    paths = json.loads(DOCUMENT.read_text())["paths"]
    told = {
        (method.upper(), path): operation
        for path, item in paths.items()
        for method, operation in item.items()
    }
    served_api = {(each.method, each.path) for each in served.routes if each.path.startswith(API)}
    assert set(told) <= served_api
    assert served_api - set(told) == UNDESCRIBED
    for (method, path), operation in told.items():
        assert (operation.get("security") == []) is ((method, path) in PUBLIC), (method, path)


async def test_nobody_gets_in_with_nothing_or_something_wrong(served: Served) -> None:
    key = served.key()["authorization"]
    expired = served.key(expires_at_us=served.clock.now_us() + HOUR_US)
    revoked = served.key()
    served.identity.keys.revoke(revoked["authorization"].split("_")[1], LOCAL)
    ended = await served.login("admin")
    await served.identity.logout(ended["cookie"].partition("=")[2])
    kept = await served.login("admin")
    wrong: dict[str, dict[str, str]] = {
        "nothing": {},
        "no scheme": {"authorization": TOKEN},
        "another scheme": {"authorization": f"Basic {TOKEN}"},
        "a wrong token": {"authorization": f"Bearer {TOKEN[:-1]}x"},
        "an empty token": {"authorization": "Bearer "},
        "a key's beginning": {"authorization": key[:-1]},
        "a key that never was": {"authorization": "Bearer pk_0011223344_" + "A" * 40},
        "an expired key": expired,
        "a revoked key": revoked,
        "a key as a cookie": {"cookie": f"perdure_login={key.partition(' ')[2]}"},
        "an ended login": ended,
        "a wrong cookie": {"cookie": f"{kept['cookie'][:-1]}~"},
        "a login as a token": {"authorization": f"Bearer {kept['cookie'].partition('=')[2]}"},
    }
    served.clock.advance_us(HOUR_US)
    for route in served.protected():
        for what, headers in wrong.items():
            for method in {route.method, "HEAD" if route.method == "GET" else route.method}:
                got = await served.send(route, method, headers=headers)
                case = (what, method, route.path, got.body)
                if route.on_unauthorized:
                    assert got.status == 303, case
                    assert got.headers["location"].startswith(route.on_unauthorized), case
                else:
                    assert got.status == 401, case
    assert served.nothing_was_done()


async def test_each_role_gets_what_it_may_and_nothing_else(served: Served) -> None:
    keys = {role: served.key(role) for role in ROLES}
    for route in served.protected():
        for role in ROLES:
            login = await served.login(role)
            csrf = {"x-csrf-token": await served.csrf(login)}
            for how, headers in {"key": keys[role], "login": {**login, **csrf}}.items():
                served.broker.asked.clear()
                served.broker.audited.clear()
                got = await served.send(route, headers=headers)
                case = (role, how, route.method, route.path, got.status, got.body[:200])
                if ROLES.index(role) < ROLES.index(route.right):
                    assert got.status == 403, case
                    assert served.nothing_was_done(), case
                else:
                    assert got.status not in (303, 401, 403), case


async def test_a_login_changes_nothing_without_its_token(served: Served) -> None:
    login = await served.login("admin")
    own = await served.csrf(login)
    other = await served.csrf(await served.login("admin"))
    forged: dict[str, dict[str, str]] = {
        "no token": {},
        "an empty one": {"x-csrf-token": ""},
        "of another login": {"x-csrf-token": other},
        "from another site": {"x-csrf-token": own, "sec-fetch-site": "cross-site"},
        "from another origin": {"x-csrf-token": own, "origin": "http://elsewhere"},
    }
    asked = 0
    for route in served.protected():
        if route.method == "GET":
            continue
        for what, headers in forged.items():
            got = await served.send(route, headers={**login, **headers})
            assert got.status == 403, (what, route.method, route.path)
            asked += 1
    assert asked > 100
    assert served.nothing_was_done()
    assert (await ask(served.app, f"{API}/me", token=None, headers=login)).status == 200


async def test_a_key_whose_scope_is_too_small_is_refused(served: Served) -> None:
    elsewhere = {resource: served.key(scopes=(resource,)) for resource in ("bans", "filters")}
    for route in served.protected():
        if route.is_about_asker:
            continue
        resource = route.operation.partition(".")[0]
        got = await served.send(
            route, headers=elsewhere["filters" if resource == "bans" else "bans"]
        )
        assert got.status == 403, (route.method, route.path)
    assert served.nothing_was_done()
    siblings: dict[str, set[str]] = {}
    for route in served.protected():
        if route.operation in OPERATIONS:
            resource = route.operation.partition(".")[0]
            siblings.setdefault(resource, set()).add(route.operation)
    for route in served.protected():
        name = route.operation
        if name not in OPERATIONS:
            continue
        others = tuple(sorted(siblings[name.partition(".")[0]] - {name})) or ("bans",)
        for what, role, scopes, is_refused in (
            ("its own scope", "admin", (name,), False),
            ("that of its resource", "admin", (name.partition(".")[0],), False),
            ("all others of its resource", "admin", others, True),
            ("its own scope, and too low a role", "viewer", (name,), route.right != "viewer"),
        ):
            headers = served.key(role, scopes=scopes)
            got = await served.send(route, headers=headers)
            assert (got.status == 403) is is_refused, (what, route.method, route.path, got.body)
            served.identity.keys.revoke(headers["authorization"].split("_")[1], LOCAL)


async def test_a_key_may_ask_what_it_may(served: Served) -> None:
    about = [route for route in served.protected() if route.is_about_asker]
    assert [route.path for route in about] == [f"{API}/me"]
    for narrowed in ({"scopes": ("bans",)}, {"topic_filters": ("only/this/#",)}):
        got = await served.send(about[0], headers=served.key(**narrowed))
        assert got.status == 200
        assert got.json["scopes"] == list(narrowed.get("scopes", ()))
    assert served.nothing_was_done()


async def test_a_key_for_some_topics_has_no_others(served: Served) -> None:
    narrow = served.key(topic_filters=("only/this/#",))
    for route in served.protected():
        if route.narrows or route.is_about_asker:
            continue  # tells of its own topics alone, which its own tests show
        got = await served.send(route, headers=narrow)
        # A request is judged by the topics that it names, so one that can't be read is no request.
        assert got.status in (400, 403), (route.method, route.path, got.status)
    assert served.broker.asked == []
    assert {each.outcome for each in served.broker.audited} == {"forbidden"}, (
        "it stands in the audit"
    )
