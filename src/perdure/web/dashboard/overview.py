"""The first page: is it well, and what goes on."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.listeners import ListListeners
from perdure.admin.records.node import ALL_NODES, GetHistory, GetOverview, ListNodes
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.render import HEADERS
from perdure.web.routing import WebRoute

CHARTED: Final = (
    "messages_received",
    "messages_delivered",
    "messages_dropped",
    "bytes_received",
    "bytes_sent",
    "sessions_connected",
    "sessions_offline",
    "pending_messages",
    "log_bytes",
    "event_loop_lag_us",
    "cpu_cores",
    "ack_p50_us",
    "ack_p99_us",
)
"""Series that the page draws; others are in the API."""


def overview_routes(desk: Desk) -> list[WebRoute]:
    """The page, and what it draws."""

    async def overview(request: Request) -> Response:
        name = request.query_params.get("node", "")
        now, nodes = await asyncio.gather(
            desk.ask(request, GetOverview(node=name)), desk.ask(request, ListNodes())
        )
        return desk.page(
            request,
            "overview_numbers.html" if is_part(request) else "overview.html",
            current="overview",
            now=now,
            nodes=nodes.items,
            node=name,
            # The stream tells of this one alone; parts of the page have the others'.
            is_own=any(each.is_self and each.name == now.node for each in nodes.items),
            is_all=now.node == ALL_NODES,
        )

    async def history(request: Request) -> Response:
        name = request.query_params.get("node", "")
        found = await desk.ask(request, GetHistory(node=name))
        series: dict[str, list[float | None]] = {
            # Where nothing was acknowledged the line has a gap.
            name: [each or None for each in found.series[name]]
            if name.startswith("ack_")
            else list(found.series[name])
            for name in CHARTED
            if name in found.series
        }
        body = msgspec.json.encode(
            {"step_s": found.step_s, "until_us": found.until_us, "series": series}
        )
        return Response(body, headers=HEADERS, media_type="application/json")

    async def nodes(request: Request) -> Response:
        found, listeners = await asyncio.gather(
            desk.ask(request, ListNodes()), desk.ask(request, ListListeners())
        )
        return desk.page(
            request,
            "nodes.html",
            current="nodes",
            nodes=found.items,
            listeners=listeners.items,
        )

    return [
        desk.route("/ui/", overview),
        desk.route("/ui/history", history),
        desk.route("/ui/nodes", nodes),
    ]
