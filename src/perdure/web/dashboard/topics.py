"""Who subscribes to what, and who gets a topic."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.subscriptions import ListSharedGroups, ListSubscriptions, MatchTopic
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.forms import asked, given
from perdure.web.routing import WebRoute

PAGE = 100


def topic_routes(desk: Desk) -> list[WebRoute]:
    """Subscriptions, the tester, shared groups."""

    async def subscriptions(request: Request) -> Response:
        filters = given(request, "client_id", "filter")
        fields = {
            "limit": PAGE,
            "cursor": request.query_params.get("cursor", ""),
            "prefix": filters["client_id"],
            "filter~": filters["filter"],
        }
        page = await desk.look(request, asked(ListSubscriptions, fields))
        template = "subscriptions_rows.html" if is_part(request) else "subscriptions.html"
        return desk.page(request, template, current="subscriptions", page=page, filters=filters)

    async def match(request: Request) -> Response:
        fields = {
            "limit": PAGE,
            "topic": request.query_params.get("topic", ""),
            "cursor": request.query_params.get("cursor", ""),
        }
        page = await desk.look(request, asked(MatchTopic, fields))
        before = request.query_params.get("seen", "")
        seen = len(page.items) + (int(before) if before.isdecimal() and len(before) < 10 else 0)
        told = {"page": page, "asked": fields, "seen": seen}
        return desk.page(request, "match.html", current="subscriptions", **told)

    async def shared(request: Request) -> Response:
        fields = {"limit": PAGE, "cursor": request.query_params.get("cursor", "")}
        page = await desk.ask(request, asked(ListSharedGroups, fields))
        return desk.page(request, "shared.html", current="shared", page=page)

    return [
        desk.route("/ui/subscriptions", subscriptions),
        desk.route("/ui/subscriptions/match", match),
        desk.route("/ui/shared", shared),
    ]
