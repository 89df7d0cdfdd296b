"""Nothing without a token but health; an answer whatever goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.web.asgi import TOKEN, ask

pytest.importorskip("starlette")
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from perdure.pipeline.protocol import API, LOG_PATH
from perdure.web.guard import OPEN_PATHS, Guard

PATHS = [
    LOG_PATH,
    f"{LOG_PATH}/generations",
    f"{LOG_PATH}/read",
    f"{API}/nothing",
    f"{API}/livez/",
    f"{API}//livez",
    "/",
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
    assert context.told[0] == {"event": "http.refused", "peer": "127.0.0.1", "path": path}


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
async def test_health_needs_none(app: Any, path: str) -> None:
    assert (await ask(app, path, token=None)).status in {200, 503}


async def test_what_is_not_there(app: Any) -> None:
    got = await ask(app, f"{API}/nothing")
    assert (got.status, got.json["code"]) == (404, "not_found")
    got = await ask(app, LOG_PATH, method="DELETE")
    assert (got.status, got.json["code"]) == (405, "method_not_allowed")


async def test_a_token_file_that_is_gone_is_told_to_the_log(app: Any, context: Any) -> None:
    context.tokens._path.unlink()
    assert (await ask(app, LOG_PATH)).status == 401
    assert context.told[-1]["event"] == "http.token_file_unreadable"


async def test_a_defect_is_an_answer_without_details(context: Any) -> None:
    async def defect(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("secret detail")

    got = await ask(Guard(defect, context), LOG_PATH)
    assert (got.status, got.json["code"]) == (500, "internal")
    assert b"secret" not in got.body
    assert context.told[0]["request_id"] == got.json["request_id"]
    assert "secret detail" in context.told[0]["error"]


async def test_a_defect_within_an_answer_cuts_it(context: Any) -> None:
    async def defect(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("half")(scope, receive, send)
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        await ask(Guard(defect, context), LOG_PATH)
    assert context.told[0]["event"] == "http.cut"
