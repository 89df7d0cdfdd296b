"""What goes on from here: pipelines, forwarders, applications, and filters that choose for them."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.applications import ListApplications
from perdure.admin.records.filters import ListFilters
from perdure.admin.records.forwarders import ListForwarders, ShowForwarder
from perdure.admin.records.pipeline import ListPipelines
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.forms import asked
from perdure.web.routing import WebRoute

PAGE = 100


def flow_routes(desk: Desk) -> list[WebRoute]:
    """Forwarders and one of them, applications, content filters, pipelines."""

    async def forwarders(request: Request) -> Response:
        page = await desk.ask(request, asked(ListForwarders, _paged(request)))
        template = "forwarders_rows.html" if is_part(request) else "forwarders.html"
        return desk.page(request, template, current="forwarders", page=page)

    async def forwarder(request: Request) -> Response:
        found = await desk.ask(request, ShowForwarder(name=request.path_params["name"]))
        return desk.page(
            request,
            "forwarder_state.html" if is_part(request) else "forwarder.html",
            current="forwarders",
            found=found,
            written=lambda value: (
                value if isinstance(value, str) else msgspec.json.encode(value).decode()
            ),
        )

    async def applications(request: Request) -> Response:
        page = await desk.ask(request, asked(ListApplications, _paged(request)))
        template = "applications_rows.html" if is_part(request) else "applications.html"
        return desk.page(request, template, current="applications", page=page)

    async def pipelines(request: Request) -> Response:
        page = await desk.ask(request, asked(ListPipelines, _paged(request)))
        template = "pipelines_rows.html" if is_part(request) else "pipelines.html"
        return desk.page(request, template, current="pipelines", page=page)

    async def filters(request: Request) -> Response:
        page = await desk.ask(request, asked(ListFilters, _paged(request)))
        return desk.page(request, "filters.html", current="filters", page=page)

    return [
        desk.route("/ui/forwarders", forwarders),
        desk.route("/ui/forwarders/{name}", forwarder),
        desk.route("/ui/applications", applications),
        desk.route("/ui/filters", filters),
        desk.route("/ui/pipelines", pipelines),
    ]


def _paged(request: Request) -> dict[str, object]:
    return {"limit": PAGE, "cursor": request.query_params.get("cursor", "")}
