"""Who may administer the broker, what they have changed, and who is kept out."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.bans import ListBans
from perdure.admin.records.identity import ListAudit, ListKeys, ListUsers
from perdure.admin.records.listeners import ListUnauthorized
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

AUDIT_PAGE = 50


def access_routes(desk: Desk) -> list[WebRoute]:
    """Users and keys, the audit, bans."""

    async def access(request: Request) -> Response:
        users, keys = await asyncio.gather(
            desk.ask(request, ListUsers(limit=PAGE_MAX)),
            desk.ask(request, ListKeys(limit=PAGE_MAX)),
        )
        return desk.page(
            request, "access.html", current="access", users=users.items, keys=keys.items
        )

    async def audit(request: Request) -> Response:
        given = request.query_params
        try:
            asked = msgspec.convert(
                {
                    "limit": AUDIT_PAGE,
                    "cursor": given.get("cursor", ""),
                    "resource": given.get("resource", ""),
                },
                ListAudit,
            )
        except msgspec.ValidationError as error:
            raise ApiError("bad_request", str(error)) from error
        page = await desk.look(request, asked)
        template = "audit_rows.html" if is_part(request) else "audit.html"
        return desk.page(
            request,
            template,
            current="audit",
            page=page,
            filters={"resource": asked.resource},
            dump=lambda value: msgspec.json.format(msgspec.json.encode(value), indent=1).decode(),
        )

    async def bans(request: Request) -> Response:
        page, refused = await asyncio.gather(
            desk.ask(request, ListBans(limit=100, cursor=request.query_params.get("cursor", ""))),
            desk.ask(request, ListUnauthorized(limit=50)),
        )
        return desk.page(request, "bans.html", current="bans", page=page, refused=refused.items)

    return [
        desk.route("/ui/access", access, right="admin"),
        desk.route("/ui/audit", audit, right="admin"),
        desk.route("/ui/bans", bans),
    ]
