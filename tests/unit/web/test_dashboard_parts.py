"""Parts of pages that their stream keeps up to date."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import Response

pytest.importorskip("jinja2")

from perdure.admin.problems import Refused
from perdure.admin.rights import Principal
from perdure.web.dashboard.desk import is_part
from perdure.web.dashboard.parts import PARTS_MAX, Parts, PartTable
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

TICK_S = 2.0


class Shown:
    """Pages: one of a thing that changes, and one that operators may have."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.text = "as it was"
        self.now_s = 100.0
        self.table = PartTable(
            [
                WebRoute(method="GET", path="/ui/things/{name}", endpoint=self.thing),
                WebRoute(method="GET", path="/ui/traces", endpoint=self.thing, right="operator"),
                WebRoute(method="POST", path="/ui/things", endpoint=self.thing),
                WebRoute(method="GET", path="/secret", endpoint=self.thing),
            ]
        )

    async def thing(self, request: Request) -> Response:
        self.asked.append(request)
        if self.text == "gone":
            raise Refused("not_found", "there is no such thing")
        return Response(f"<p>{self.text}</p>")

    def open(self, *names: str, principal: Principal | None = None) -> Parts:
        """What a page of somebody has."""
        query = "&".join(f"part={quote(name, safe='')}" for name in names)
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/ui/live",
            "raw_path": b"/ui/live",
            "query_string": query.encode(),
            "headers": [
                (b"cookie", b"perdure_login=x"),
                (b"accept", b"text/event-stream"),
                (b"accept-encoding", b"gzip"),
            ],
            "state": {"principal": principal or Principal("v", "viewer"), "request_id": "r"},
        }
        made = self.table.parts_of(Request(scope))
        made._clock = lambda: self.now_s
        return made

    async def tick(self, parts: Parts) -> list[dict[str, Any]]:
        """What comes with an event."""
        told = (await parts.news()).decode()
        self.now_s += TICK_S
        events = told.split("\n\n")[:-1]
        assert all(event.startswith("event: part\ndata: ") for event in events)
        return [json.loads(event.partition("data: ")[2]) for event in events]


async def test_what_is_as_it_was_is_not_sent_again() -> None:
    shown = Shown()
    parts = shown.open("4:/ui/things/a%2Fb?by=size&by=name")
    first = {"part": "4:/ui/things/a%2Fb?by=size&by=name", "html": "<p>as it was</p>"}
    assert await shown.tick(parts) == [first]
    assert [await shown.tick(parts) for _ in range(3)] == [[], [], []]
    assert len(shown.asked) == 2, "every four seconds, of which two pass with each event"
    shown.text = "new"
    assert await shown.tick(parts) == [{**first, "html": "<p>new</p>"}]
    (request, *_) = shown.asked
    assert request.path_params == {"name": "a/b"}
    assert request.query_params.getlist("by") == ["size", "name"]
    assert is_part(request)
    assert request.cookies == {"perdure_login": "x"}, "its forms have the token of the login"
    assert "accept-encoding" not in request.headers


async def test_each_part_has_its_own_pace() -> None:
    shown = Shown()
    parts = shown.open("2:/ui/things/often", "10:/ui/things/seldom")
    for _ in range(10):
        await shown.tick(parts)
    names = [request.path_params["name"] for request in shown.asked]
    assert (names.count("often"), names.count("seldom")) == (10, 2)


async def test_what_is_gone_is_told_once() -> None:
    shown = Shown()
    parts = shown.open("2:/ui/things/a")
    shown.text = "gone"
    (told,) = await shown.tick(parts)
    assert told["problem"]["code"] == "not_found"
    assert await shown.tick(parts) == []
    shown.text = "back"
    assert (await shown.tick(parts))[0]["html"] == "<p>back</p>"


@pytest.mark.parametrize(
    ("principal", "code"),
    [
        (Principal("v", "viewer"), "forbidden"),
        (Principal("k", "admin", ("sessions",)), "forbidden"),
        (Principal("k", "admin", topic_filters=("a/#",)), "forbidden"),
        (Principal("o", "operator"), ""),
    ],
)
async def test_a_part_is_judged_as_its_page_is(principal: Principal, code: str) -> None:
    shown = Shown()
    if not code:
        assert await shown.tick(shown.open("2:/ui/traces", principal=principal))
        return
    with pytest.raises(ApiError) as caught:
        shown.open("2:/ui/traces", principal=principal)
    assert caught.value.problem_code == code
    assert not shown.asked


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2",
        "2:",
        "0:/ui/traces",
        "/ui/traces",
        "2:/ui/nothing",
        "2:/secret",
        "2:/ui/things",
        "2://evil/ui/traces",
        "2:/ui/%ff",
        f"2:/ui/things/{'x' * 5_000}",
    ],
)
async def test_what_is_no_part_is_refused(name: str) -> None:
    with pytest.raises(ApiError):
        Shown().open(name, principal=Principal("a", "admin"))


async def test_a_page_has_few_parts() -> None:
    shown = Shown()
    assert len(await shown.tick(shown.open(*["2:/ui/things/a"] * PARTS_MAX))) == PARTS_MAX
    with pytest.raises(ApiError, match="at most"):
        shown.open(*["2:/ui/things/a"] * (PARTS_MAX + 1))
