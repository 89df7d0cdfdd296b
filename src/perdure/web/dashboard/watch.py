"""What the broker warns of, and which sessions are slow or have most to do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.watch import AlarmPage, GetTop, ListAlarms, ListSlow, Top, TopRow
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.forms import asked, given
from perdure.web.routing import WebRoute

SHOWN: Final = 50
"""Sessions on the page; the broker finds the first ones among all."""

UNITS: Final[Mapping[str, str]] = {
    "disk": "%",
    "open_files": "%",
    "loop_lag": "ms",
    "delivery_lag": "s",
    "refused": "/s",
    "dropped": "/s",
    "flapping": "clients",
}
"""Of the values of alarms, as their settings have it."""

LOOK_AT: Final[Mapping[str, tuple[str, str]]] = {
    "disk": ("/ui/storage", "Storage"),
    "storage": ("/ui/storage", "Storage"),
    "open_files": ("/ui/nodes", "Nodes"),
    "loop_lag": ("/ui/", "Overview"),
    "delivery_lag": ("/ui/slow?by=oldest", "Slow subscribers"),
    "refused": ("/ui/bans", "Kept out"),
    "dropped": ("/ui/", "Overview"),
    "flapping": ("/ui/bans", "Kept out"),
}
"""The page that says more about an alarm."""

ORDERS: Final[Mapping[str, str]] = {
    "slow": "behind by a second or more",
    "oldest": "longest without an acknowledgement",
    "pending": "most messages that wait",
    "inflight": "most messages in flight",
    "rate_out": "most messages per second",
    "subs": "most subscriptions",
    "idle": "silent for longest",
    "client": "client id",
}


def watch_routes(desk: Desk) -> list[WebRoute]:
    """Alarms, and slow subscribers."""

    async def alarms(request: Request) -> Response:
        page: AlarmPage = await desk.ask(request, ListAlarms(ended=True))
        template = "alarms_rows.html" if is_part(request) else "alarms.html"
        return desk.page(
            request,
            template,
            current="alarms",
            raised=[each for each in page.items if each.state == "raised"],
            ended=[each for each in page.items if each.state == "cleared"],
            units=UNITS,
            look_at=LOOK_AT,
        )

    async def slow(request: Request) -> Response:
        by = given(request, "by")["by"] or "slow"
        rows, top = await _busy(desk, request, by)
        template = "slow_rows.html" if is_part(request) else "slow.html"
        return desk.page(
            request, template, current="slow", by=by, rows=rows, top=top, orders=ORDERS, shown=SHOWN
        )

    return [desk.route("/ui/alarms", alarms), desk.route("/ui/slow", slow)]


async def _busy(desk: Desk, request: Request, by: str) -> tuple[list[TopRow], Top]:
    """The rows of an order, and how all sessions do."""
    if by != "slow":
        top = await desk.ask(request, asked(GetTop, {"sort": by, "limit": SHOWN}))
        return top.items, top
    page, top = await asyncio.gather(
        desk.ask(request, ListSlow(limit=SHOWN)), desk.ask(request, GetTop(limit=1))
    )
    return page.items, top
