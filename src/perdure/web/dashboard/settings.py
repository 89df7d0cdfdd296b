"""The configuration with its origins, and who may connect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.limits import PAGE_MAX
from perdure.admin.problems import Refused
from perdure.admin.records.access import Credential, GetAclText, ListAcl, ListCredentials
from perdure.admin.records.config import GetConfig, GetLogLevel, SettingRow
from perdure.admin.records.tokens import ListTokens, TokenPage
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.forms import asked, given
from perdure.web.routing import WebRoute


def setting_routes(desk: Desk) -> list[WebRoute]:
    """The configuration, and credentials with the ACL."""

    async def config(request: Request) -> Response:
        filters = given(request, "prefix", "changed")
        found, level = await asyncio.gather(
            desk.ask(request, asked(GetConfig, dict(filters))), desk.ask(request, GetLogLevel())
        )
        template = "config_rows.html" if is_part(request) else "config.html"
        return desk.page(
            request,
            template,
            current="config",
            sections=_sections(found.items),
            filters=filters,
            level=level.level,
        )

    async def clients(request: Request) -> Response:
        credentials, acl = await asyncio.gather(
            _credentials(desk, request), desk.ask(request, ListAcl(limit=PAGE_MAX))
        )
        text = await desk.ask(request, GetAclText()) if acl.enforced else None
        return desk.page(
            request, "clients.html", current="clients", credentials=credentials, acl=acl, text=text
        )

    async def tokens(request: Request) -> Response:
        filters = given(request, "identity")
        page, problem = TokenPage(items=[]), ""
        try:
            page = await desk.ask(
                request, asked(ListTokens, {**filters, **given(request, "cursor"), "limit": 50})
            )
        except Refused as error:
            if error.problem.code not in ("not_available", "config_invalid"):
                raise
            problem = error.problem.message
        return desk.page(
            request, "tokens.html", current="tokens", page=page, problem=problem, filters=filters
        )

    return [
        desk.route("/ui/config", config),
        desk.route("/ui/clients", clients, right="operator"),
        desk.route("/ui/tokens", tokens, right="operator"),
    ]


def _sections(settings: Sequence[SettingRow]) -> list[tuple[str, list[SettingRow], int]]:
    """Settings by the first word of their names, and how many of each are not at their defaults."""
    found: dict[str, list[SettingRow]] = {}
    for each in settings:
        found.setdefault(each.setting.partition(".")[0], []).append(each)
    return [
        (name, rows, sum(row.origin != "default" for row in rows)) for name, rows in found.items()
    ]


async def _credentials(desk: Desk, request: Request) -> list[Credential]:
    """Users of the password file; none where there is no file."""
    try:
        return (await desk.ask(request, ListCredentials(limit=PAGE_MAX))).items
    except Refused as error:
        if error.problem.code != "not_available":
            raise
        return []
