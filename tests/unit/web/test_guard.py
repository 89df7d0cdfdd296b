"""Nothing without a token but health; an answer whatever goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.web.asgi import TOKEN, ask

pytest.importorskip("starlette")
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from perdure.errors import StorageCorrupt
from perdure.pipeline.protocol import API, LOG_PATH
from perdure.web.guard import PROBES, Guard
from perdure.web.routing import WebRoute


def guard_of(answering: Any, context: Any) -> Guard:
    """A guard around one application."""

    async def endpoint(_request: object) -> Any:
        return answering

    return Guard([WebRoute(method="GET", path=LOG_PATH, endpoint=endpoint)], context)


PATHS = [
    LOG_PATH,
    f"{LOG_PATH}/generations",
    f"{LOG_PATH}/read",
    f"{API}/nothing",
    f"{API}/livez/",
    f"{API}//livez",
    "/x",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], f"{TOKEN}0", "x" * 32])
async def test_nothing_is_told_without_a_token(
    app: Any, context: Any, path: str, token: str | None
) -> None:
    for method in ("GET", "POST"):
        got = await ask(app, path, method=method, token=token)
        assert (got.status, got.json["code"]) == (401, "unauthorized")
        assert got.json["request_id"] == got.headers["x-request-id"]
        assert "www-authenticate" in got.headers
    assert context.told[0] == {
        "event": "http.refused",
        "peer": "127.0.0.1",
        "method": "GET",
        "path": path,
        "status": 401,
        "code": "unauthorized",
        "request_id": context.told[0]["request_id"],
    }


LIVEZ = f"{API}/livez"


@pytest.mark.parametrize(
    ("path", "host"),
    [
        # The URL of such a request would have the path of what is open (CVE-2026-48710).
        (LOG_PATH, f"x{LIVEZ}?"),
        (LOG_PATH, f"x{LIVEZ}#"),
        (f"{LOG_PATH}/read", f"x@y{LIVEZ}?z="),
        (f"http://x{LIVEZ}?{LOG_PATH}", "x"),
        (f"http://x{LOG_PATH}", f"x{LIVEZ}?"),
        (f"http:%2F%2Fx{LIVEZ}", "x"),
        (f"{LIVEZ}/../storage/databases/log", "x"),
        (f"{LIVEZ}%2F..%2Fstorage%2Fdatabases%2Flog", "x"),
        (f"{LOG_PATH}/../../../livez", "x"),
        (f"/{LIVEZ}", "x"),
        (f"{LIVEZ};{LOG_PATH}", "x"),
        (f"{LIVEZ}%00", "x"),
        (f"{API}/LIVEZ", "x"),
        ("*", f"x{LIVEZ}?"),
    ],
)
@pytest.mark.usefixtures("database")
async def test_access_goes_by_the_path_that_is_routed(app: Any, path: str, host: str) -> None:
    got = await ask(app, path, host=host, token=None)
    assert (got.status, got.json["code"]) == (401, "unauthorized")


@pytest.mark.usefixtures("database")
async def test_absolute_form(app: Any) -> None:
    assert (await ask(app, f"http://x{API}/version", token=None)).status == 200
    assert (await ask(app, f"HTTPS://x:1{LOG_PATH}")).status == 200
    assert (await ask(app, "http://x/x")).status == 404


@pytest.mark.parametrize("path", sorted(PROBES))
async def test_health_needs_none(app: Any, path: str) -> None:
    assert (await ask(app, path, token=None)).status in {200, 503}


async def test_what_is_not_there(app: Any) -> None:
    got = await ask(app, f"{API}/nothing")
    assert (got.status, got.json["code"]) == (404, "not_found")
    got = await ask(app, LOG_PATH, method="DELETE")
    assert (got.status, got.json["code"]) == (405, "method_not_allowed")
    assert got.headers["allow"] == "GET, HEAD"


async def test_a_token_file_that_is_gone_is_told_to_the_log(app: Any, context: Any) -> None:
    context.tokens._path.unlink()
    assert (await ask(app, LOG_PATH)).status == 401
    assert [one["event"] for one in context.told] == ["http.token_file_unreadable", "http.refused"]


async def test_a_defect_is_an_answer_without_details(context: Any) -> None:
    async def defect(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("secret detail")

    got = await ask(guard_of(defect, context), LOG_PATH)
    assert (got.status, got.json["code"]) == (500, "internal")
    assert b"secret" not in got.body
    assert context.told[0]["request_id"] == got.json["request_id"]
    assert "secret detail" in context.told[0]["error"]


async def test_a_defect_within_an_answer_cuts_it(context: Any) -> None:
    async def defect(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("half")(scope, receive, send)
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        await ask(guard_of(defect, context), LOG_PATH)
    assert context.told[0]["event"] == "http.cut"


def counted(context: Any) -> dict[tuple[str, str, str], int]:
    told = context.traffic.take()
    assert told is not None
    assert sum(sum(counts) for _, counts, _ in told.seconds) == sum(r[3] for r in told.requests)
    return {(route, method, status): count for route, method, status, count in told.requests}


@pytest.mark.usefixtures("database")
async def test_every_request_is_counted(app: Any, context: Any) -> None:
    await ask(app, f"{API}/version", token=None)
    got = await ask(app, LOG_PATH)
    await ask(app, LOG_PATH, token=None)
    await ask(app, f"{API}/{TOKEN}")
    await ask(app, "/x" * 50, method="BREW")
    await ask(app, f"{LOG_PATH}/read", query="limit=x")
    assert context.traffic.in_flight == 0
    told = context.traffic.take()
    assert {tuple(one[:3]) for one in told.requests} == {
        ("/version", "GET", "200"),
        ("/storage/databases/log", "GET", "200"),
        ("/storage/databases/log", "GET", "401"),
        ("other", "GET", "404"),
        ("other", "other", "404"),
        ("/storage/databases/log/read", "GET", "400"),
    }
    assert dict(told.response_bytes)["/storage/databases/log"] > len(got.body)
    assert {kind for kind, _, _ in told.seconds} == {"probe", "query", "read"}
    assert context.traffic.take() is None


async def test_refusals_are_told_without_secrets(app: Any, context: Any) -> None:
    query = f"token={TOKEN}&limit=x"
    await ask(app, f"{LOG_PATH}/read", query=query)
    await ask(app, f"{API}/" + "x" * 500, query=query)
    await ask(app, LOG_PATH, method="DELETE", query=query)
    told = context.told
    assert [(one["event"], one["code"], one["status"]) for one in told] == [
        ("http.refused", "bad_request", 400),
        ("http.refused", "not_found", 404),
        ("http.refused", "method_not_allowed", 405),
    ]
    assert TOKEN not in str(told)
    assert len(told[1]["path"]) == 200


async def test_a_probe_that_finds_no_broker_is_no_refusal(app: Any, context: Any) -> None:
    assert (await ask(app, f"{API}/livez", token=None)).status == 503
    assert context.told == []
    assert counted(context) == {("/livez", "GET", "503"): 1}


async def test_defects_and_cuts_are_counted_too(context: Any) -> None:
    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("late")

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        return

    async def left(scope: Scope, receive: Receive, send: Send) -> None:
        raise ClientDisconnect

    async def corrupt(scope: Scope, receive: Receive, send: Send) -> None:
        raise StorageCorrupt("a block is broken")

    with pytest.raises(ValueError, match="late"):
        await ask(guard_of(late, context), LOG_PATH)
    for app in (silent, left):
        with pytest.raises(ValueError, match="not enough values"):
            await ask(guard_of(app, context), LOG_PATH)
    assert (await ask(guard_of(corrupt, context), LOG_PATH)).status == 500
    assert context.traffic.in_flight == 0
    route = LOG_PATH.removeprefix(API)
    assert counted(context) == {
        (route, "GET", "cut"): 1,
        (route, "GET", "gone"): 2,
        (route, "GET", "500"): 1,
    }
    assert "a block is broken" in str(context.told)
