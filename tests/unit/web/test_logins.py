"""Who gets in with a cookie or a key, and what keeps other sites out."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from perdure.admin.rights import Principal
from perdure.identity import passwords
from perdure.identity.ledger import Actor
from perdure.pipeline.protocol import API, CURSORS_PATH
from tests.unit.web.asgi import Answer, ask

PASSWORD = "correct horse battery"
LOCAL = Actor(Principal("root", "admin", source="socket"))
HOST = "broker:18083"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("argon2")
    monkeypatch.setattr(passwords, "TIME_COST", 1)
    monkeypatch.setattr(passwords, "MEMORY_KIB", 8)


async def send(app: Any, path: str, method: str = "GET", **more: Any) -> Answer:
    path, _, query = path.partition("?")
    return await ask(
        app, path, **{"method": method, "query": query, "token": None, "host": HOST, **more}
    )


async def logged_in(app: Any, context: Any, role: str = "viewer") -> tuple[str, str]:
    """The cookie of a new login, and its CSRF token."""
    await context.identity.add_user("ada", role, PASSWORD, LOCAL)
    body = f'{{"name": "ada", "password": "{PASSWORD}"}}'.encode()
    answer = await send(app, f"{API}/login", "POST", body=body)
    assert answer.status == 200, answer.body
    cookie = answer.headers["set-cookie"]
    assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
    return cookie.partition(";")[0], answer.json["csrf_token"]


async def test_a_login_reads_and_its_end_holds_at_once(app: Any, context: Any) -> None:
    cookie, csrf = await logged_in(app, context)
    with_cookie = {"cookie": f"theme=dark; {cookie}"}
    me = await send(app, f"{API}/me", headers=with_cookie)
    assert (me.json["name"], me.json["role"], me.json["source"]) == ("ada", "viewer", "session")
    assert (await send(app, f"{API}/me", headers={"cookie": cookie[:-1] + "x"})).status == 401
    away = await send(app, "/ui/sessions", headers={"cookie": "perdure_login="})
    assert (away.status, away.headers["location"]) == (303, "/ui/login?next=/ui/sessions")
    out = await send(app, f"{API}/logout", "POST", headers={**with_cookie, "x-csrf-token": csrf})
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (await send(app, f"{API}/me", headers=with_cookie)).status == 401


async def test_a_login_leads_to_where_somebody_wanted_to_go(app: Any, context: Any) -> None:
    cookie, _ = await logged_in(app, context)
    away = await send(app, "/ui/sessions?state=offline&client_id=a%2Fb")
    place = "/ui/sessions%3Fstate%3Doffline%26client_id%3Da%252Fb"
    assert away.headers["location"] == f"/ui/login?next={place}"
    asked = await send(app, away.headers["location"])
    kept = b'name="next" value="/ui/sessions?state=offline&amp;client_id=a%2Fb"'
    assert kept in asked.body
    found = {"name": "ada", "password": PASSWORD, "next": "/ui/sessions?state=offline"}
    wrong = await send(
        app, "/ui/login", "POST", body=urlencode({**found, "password": "no"}).encode()
    )
    assert b'value="/ui/sessions?state=offline"' in wrong.body
    right = await send(app, "/ui/login", "POST", body=urlencode(found).encode())
    assert right.headers["location"] == "/ui/sessions?state=offline"
    again = await send(app, "/ui/login?next=/ui/storage", headers={"cookie": cookie})
    assert again.headers["location"] == "/ui/storage"
    # A part of a page is no place to be, and neither is one that nobody could type.
    part = await send(app, "/ui/sessions", headers={"hx-request": "true"})
    assert part.headers["location"] == "/ui/login"
    assert (await send(app, f"/ui/sessions?client_id={'x' * 1000}")).headers["location"] == (
        "/ui/login"
    )


@pytest.mark.parametrize(
    "place",
    [
        "//elsewhere/ui/",
        "https://elsewhere/ui/",
        "/ui/login?next=/ui/login",
        "/ui/\\elsewhere",
        "/ui/\r\nSet-Cookie: a=b",
        "/ui/\u00e9",
        "/api/v1/logout",
        "javascript:alert(1)",
        "",
    ],
)
async def test_a_login_leads_nowhere_else(app: Any, context: Any, place: str) -> None:
    cookie, _ = await logged_in(app, context)
    body = urlencode({"name": "ada", "password": PASSWORD, "next": place}).encode()
    answer = await send(app, "/ui/login", "POST", body=body)
    assert (answer.status, answer.headers["location"]) == (303, "/ui/")
    query = urlencode({"next": place})
    there = await send(app, f"/ui/login?{query}", headers={"cookie": cookie})
    assert there.headers["location"] == "/ui/"


async def test_a_page_that_is_refused_is_a_page(app: Any, context: Any) -> None:
    cookie, _ = await logged_in(app, context)
    browser = {"cookie": cookie, "accept": "text/html,*/*;q=0.8"}
    forbidden = await send(app, "/ui/access", headers=browser)
    assert (forbidden.status, forbidden.headers["content-type"][:9]) == (403, "text/html")
    assert b"You may not have this page" in forbidden.body
    assert b"this needs the role admin" in forbidden.body
    missing = await send(app, "/ui/nowhere", headers=browser)
    assert (missing.status, b"There is no such resource" in missing.body) == (404, True)
    away = await send(app, "/ui/nowhere", headers={"accept": "text/html"})
    assert (away.status, away.headers["location"]) == (303, "/ui/login")
    # Programs, and scripts of a page, read what the API says everywhere.
    for path, headers in (
        ("/ui/access", {"cookie": cookie}),
        ("/ui/access", {**browser, "hx-request": "true"}),
        (f"{API}/users", browser),
    ):
        refused = await send(app, path, headers=headers)
        assert (refused.status, refused.json["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}, 200),
        ({"x-csrf-token": ""}, 403),
        ({"x-csrf-token": "0123456789abcdef.0"}, 403),
        ({"origin": "http://elsewhere"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
async def test_a_change_comes_from_our_own_page(
    app: Any, context: Any, headers: dict[str, str], status: int
) -> None:
    cookie, csrf = await logged_in(app, context)
    given = {"cookie": cookie, "x-csrf-token": csrf, **headers}
    assert (await send(app, f"{API}/logout", "POST", headers=given)).status == status


async def test_a_csrf_token_is_of_one_login(app: Any, context: Any) -> None:
    cookie, _ = await logged_in(app, context)
    body = f'{{"name": "ada", "password": "{PASSWORD}"}}'.encode()
    other = (await send(app, f"{API}/login", "POST", body=body)).json["csrf_token"]
    given = {"cookie": cookie, "x-csrf-token": other}
    assert (await send(app, f"{API}/logout", "POST", headers=given)).status == 403


async def test_a_login_over_tls_that_a_proxy_ends_is_not_sent_in_the_clear(
    app: Any, context: Any
) -> None:
    await context.identity.add_user("ada", "viewer", PASSWORD, LOCAL)
    body = urlencode({"name": "ada", "password": PASSWORD}).encode()
    for scheme in ("http", "https"):
        origin = {"origin": f"{scheme}://{HOST}"}
        answer = await send(app, "/ui/login", "POST", body=body, headers=origin)
        assert answer.headers["set-cookie"].endswith("; Secure") == (scheme == "https")
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert (await send(app, f"{API}/me", headers={"cookie": cookie})).status == 200


async def test_other_sites_log_nobody_in(app: Any, context: Any) -> None:
    await context.identity.add_user("ada", "viewer", PASSWORD, LOCAL)
    body = urlencode({"name": "ada", "password": PASSWORD}).encode()
    answer = await send(app, "/ui/login", "POST", body=body, headers={"origin": "http://else"})
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)
    answer = await send(app, "/ui/login", "POST", body=body)
    assert (answer.status, answer.headers["location"]) == (303, "/ui/")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"name":"\xff"}', b'{"x":' + b"[" * 9_999])
@pytest.mark.parametrize("path", ["login", "setup"])
async def test_what_is_no_login_is_refused(app: Any, path: str, body: bytes) -> None:
    got = await send(app, f"{API}/{path}", "POST", body=body)
    assert (got.status, got.json["code"]) == (400, "bad_request")


async def test_too_many_failures_are_told_when_to_come_again(app: Any, context: Any) -> None:
    for _ in range(5):
        answer = await send(app, f"{API}/login", "POST", body=b'{"name": "a", "password": "b"}')
        assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    answer = await send(app, f"{API}/login", "POST", body=b'{"name": "a", "password": "b"}')
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    answer = await send(app, "/ui/login", "POST", body=b"name=a&password=%3Cb%3E")
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert b"too many failed logins" in answer.body.lower()


async def test_who_guesses_behind_a_proxy_keeps_out_nobody_else(app: Any, context: Any) -> None:
    from perdure.web.app import make_app

    await context.identity.add_user("ada", "viewer", PASSWORD, LOCAL)
    context.settings = msgspec.structs.replace(context.settings, proxies=("127.0.0.1",))
    behind = make_app(context)
    wrong, right = (
        urlencode({"name": name, "password": PASSWORD}).encode() for name in ("eve", "ada")
    )
    guesses = {"x-forwarded-for": "192.0.2.7, 198.51.100.9"}
    for _ in range(6):
        got = await send(behind, "/ui/login", "POST", body=wrong, headers=guesses)
    assert got.status == 429
    # What it writes itself is no other address.
    guesses["x-forwarded-for"] = "192.0.2.8, 198.51.100.9"
    assert (await send(behind, "/ui/login", "POST", body=wrong, headers=guesses)).status == 429
    other = {"x-forwarded-for": "203.0.113.1"}
    assert (await send(behind, "/ui/login", "POST", body=right, headers=other)).status == 303
    # Without the setting all are the proxy.
    for _ in range(6):
        await send(app, "/ui/login", "POST", body=wrong, headers=guesses)
    assert (await send(app, "/ui/login", "POST", body=right, headers=other)).status == 429


async def test_the_setup_page_makes_the_first_administrator(app: Any, context: Any) -> None:
    token = context.identity.setup.offer()
    assert (await send(app, "/ui/setup", query=f"token={token}x")).status == 401
    shown = await send(app, "/ui/setup", query=f"token={token}")
    assert shown.status == 200
    assert "script-src 'self'" in shown.headers["content-security-policy"]
    form = {"token": token, "name": "ada", "password": PASSWORD, "again": PASSWORD}
    differing = urlencode({**form, "again": "x"}).encode()
    assert (await send(app, "/ui/setup", "POST", body=differing)).status == 400
    made = await send(app, "/ui/setup", "POST", body=urlencode(form).encode())
    assert (made.status, made.headers["location"]) == (303, "/ui/")
    # Pressed twice: what is there is told, and not that another link is needed.
    again = await send(app, "/ui/setup", "POST", body=urlencode(form).encode())
    assert again.status == 409
    assert b"There is an administrator already; log in at /ui/login" in again.body
    assert [each.role for each in context.identity.users.all()] == ["admin"]


async def test_a_key_is_a_bearer_token(app: Any, context: Any) -> None:
    key, secret = context.identity.keys.add("x", "viewer", LOCAL)
    bearer = {"authorization": f"Bearer {secret}"}
    assert (await send(app, f"{API}/me", headers=bearer)).json["name"] == key.id
    narrow, secret = context.identity.keys.add("y", "viewer", LOCAL, topic_filters=("a/#",))
    bearer = {"authorization": f"Bearer {secret}"}
    # How far others have read the log is more than its topics.
    assert (await send(app, CURSORS_PATH, headers=bearer)).status == 403
    context.identity.keys.revoke(narrow.id, LOCAL)
    assert (await send(app, f"{API}/me", headers=bearer)).status == 401


async def test_pages_take_a_role(app: Any, context: Any) -> None:
    cookie, _ = await logged_in(app, context, "operator")
    assert (await send(app, "/ui/access", headers={"cookie": cookie})).status == 403
    broken = await send(app, "/ui/", headers={"cookie": cookie})
    # There is no broker here: a page that says so.
    assert broken.status == 503
    assert b"the broker does not answer" in broken.body.lower()
