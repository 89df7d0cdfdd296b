"""Traces: what goes between the broker and a client, or about a topic, as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.trace import SECONDS_MAX, ListTraces, ReadTrace, TraceEvents
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.forms import asked, given
from perdure.web.dashboard.render import HEADERS
from perdure.web.routing import WebRoute

SHOWN: Final = 100
"""Events on the page, the newest first; the file has all that are kept."""

FROM_CLIENT: Final = frozenset(
    ("connect", "subscribe", "unsubscribe", "publish", "acked", "disconnect")
)
WRONG: Final = frozenset(("refused", "dropped", "undecodable"))


def trace_routes(desk: Desk) -> list[WebRoute]:
    """The list with what begins a trace, a trace as it grows, and all of it as a file."""

    async def traces(request: Request) -> Response:
        page = await desk.ask(request, ListTraces())
        template = "traces_rows.html" if is_part(request) else "traces.html"
        return desk.page(
            request,
            template,
            current="traces",
            page=page,
            wanted=given(request, "kind", "value"),
            seconds_max=SECONDS_MAX,
        )

    async def trace(request: Request) -> Response:
        until = given(request, "until")["until"]
        found = await _shown(desk, request, until)
        return desk.page(
            request,
            "trace_events.html" if is_part(request) else "trace.html",
            current="traces",
            trace=found.trace,
            events=found.items[::-1],
            is_tail=not until,
            from_client=FROM_CLIENT,
            wrong=WRONG,
        )

    async def download(request: Request) -> Response:
        name = request.path_params["trace_id"]
        first = await desk.ask(request, asked(ReadTrace, {"trace_id": name, "limit": PAGE_MAX}))
        headers = {
            **HEADERS,
            "Content-Disposition": f'attachment; filename="trace-{first.trace.id}.jsonl"',
        }
        return StreamingResponse(
            _lines(desk, request, first), headers=headers, media_type="application/jsonl"
        )

    return [
        desk.route("/ui/traces", traces, right="operator"),
        desk.route("/ui/traces/{trace_id}", trace, right="admin"),
        desk.route("/ui/traces/{trace_id}/events.jsonl", download, right="admin"),
    ]


async def _shown(desk: Desk, request: Request, until: str) -> TraceEvents:
    """The last events, or the last ones up to a number."""
    name = request.path_params["trace_id"]
    last = await desk.ask(
        request, asked(ReadTrace, {"trace_id": name, "after": until or 0, "limit": 1})
    )
    end = int(until) if until else last.trace.events
    fields = {"trace_id": name, "after": max(0, end - SHOWN), "limit": min(SHOWN, max(1, end))}
    return await desk.ask(request, asked(ReadTrace, fields))


async def _lines(desk: Desk, request: Request, page: TraceEvents) -> AsyncIterator[bytes]:
    """All events that were seen when the file was begun, a line of JSON each."""
    end = page.trace.events
    while page.items:
        items = [event for event in page.items if event.number <= end]
        yield b"".join(msgspec.json.encode(event) + b"\n" for event in items)
        after = page.items[-1].number
        if after >= end:
            return
        fields = {"trace_id": page.trace.id, "after": after, "limit": PAGE_MAX}
        page = await desk.ask(request, asked(ReadTrace, fields))
