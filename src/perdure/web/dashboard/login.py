"""Logging in and out, and the first administrator: pages that work without a script."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.problems import CODES, Refused
from perdure.web.bodies import read_form
from perdure.web.context import Context
from perdure.web.credentials import check_origin, cookie_of
from perdure.web.dashboard.desk import LOGIN_PATH
from perdure.web.dashboard.render import HEADERS, Renderer
from perdure.web.problems import ApiError
from perdure.web.routes.login import actor_of, begin, drain, with_cookie
from perdure.web.routing import WebRoute

HOME: Final = "/ui/"
PLACE: Final = re.compile(r"/ui/[!-\[\]-~]*")
"""Where a login may lead: a page of ours, and nothing that a browser would read otherwise."""
SETUP_PATH: Final = "/ui/setup"


def login_routes(context: Context, renderer: Renderer) -> list[WebRoute]:
    """The pages, for everybody."""

    def shown(request: Request, template: str, **values: Any) -> Response:
        values = {"error": None, "name": "", "token": "", "place": "", **values}
        return renderer.page(request, template, **values)

    async def login_page(request: Request) -> Response:
        presented, place = cookie_of(request.scope), request.query_params.get("next", "")
        if presented and await context.identity.of_login(presented) is not None:
            return to_path(_page_of(place))
        is_new = context.identity.users.is_empty()
        return shown(request, "login.html", is_new=is_new, place=place)

    async def login(request: Request) -> Response:
        fields = dict(await read_form(request))
        name, password = fields.get("name", ""), fields.get("password", "")
        place = fields.get("next", "")
        try:
            presented, _ = await begin(context, request, name, password)
        except (Refused, ApiError) as error:
            return shown(
                request,
                "login.html",
                error=error,
                name=name,
                place=place,
                is_new=False,
                **_refusal(error),
            )
        response = to_path(_page_of(place))
        with_cookie(context.identity, request, response, presented)
        return response

    async def setup_page(request: Request) -> Response:
        token = request.query_params.get("token", "")
        if not context.identity.setup.holds(token):
            return shown(request, "setup.html", status=401)
        return shown(request, "setup.html", token=token)

    async def setup(request: Request) -> Response:
        fields = dict(await read_form(request))
        token, name = fields.get("token", ""), fields.get("name", "")
        try:
            check_origin(request.headers)
            if fields.get("password") != fields.get("again"):
                raise Refused("bad_request", "the two passwords are not the same")
            presented, _ = await context.identity.redeem(
                token, name, fields.get("password", ""), actor_of(request, name)
            )
        except (Refused, ApiError) as error:
            return shown(
                request, "setup.html", error=error, name=name, token=token, **_refusal(error)
            )
        await drain(context)
        response = to_path(HOME)
        with_cookie(context.identity, request, response, presented)
        return response

    async def home(_request: Request) -> Response:
        return to_path(HOME)

    def open_route(method: str, path: str, endpoint: Any) -> WebRoute:
        return WebRoute(method=method, path=path, endpoint=endpoint, right=None)

    return [
        open_route("GET", "/", home),
        open_route("GET", "/ui", home),
        open_route("GET", LOGIN_PATH, login_page),
        open_route("POST", LOGIN_PATH, login),
        open_route("GET", SETUP_PATH, setup_page),
        open_route("POST", SETUP_PATH, setup),
    ]


def _page_of(place: str) -> str:
    """Where somebody wanted to go before the login, or the first page."""
    return place if PLACE.fullmatch(place) and not place.startswith(LOGIN_PATH) else HOME


def to_path(path: str) -> Response:
    """Lead a browser to another page."""
    return Response(b"", 303, headers={**HEADERS, "Location": path})


def _refusal(error: Refused | ApiError) -> dict[str, Any]:
    """Status and headers of a refused login."""
    if isinstance(error, ApiError):
        return {"status": error.status}
    wait_s = error.problem.details.get("retry_after_s")
    headers = {"Retry-After": str(wait_s)} if wait_s else {}
    return {"status": CODES[error.problem.code].status, "headers": headers}
