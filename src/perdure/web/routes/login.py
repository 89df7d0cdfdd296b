"""``/login``, ``/logout``, ``/setup`` and ``/me``: for programs that are browsers."""

from __future__ import annotations

from typing import Annotated, Any, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.problems import Refused
from perdure.admin.records.identity import DrainAudit
from perdure.admin.rights import Principal
from perdure.identity.ledger import Actor
from perdure.identity.logins import csrf_token
from perdure.identity.records import User
from perdure.identity.service import Identity
from perdure.pipeline.protocol import API
from perdure.web.bodies import read_json
from perdure.web.context import Context
from perdure.web.credentials import check_origin, cookie_of, login_cookie
from perdure.web.principals import peer_of, principal_of
from perdure.web.routes.health import json_response
from perdure.web.routing import WebRoute

Text = Annotated[str, msgspec.Meta(max_length=1_024)]


@final
class LoginRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name and password."""

    name: Text
    password: Text


@final
class SetupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first administrator, with the token of the setup link."""

    token: Text
    name: Text
    password: Text


def actor_of(request: Request, name: str) -> Actor:
    """Who seems to ask, before it is proved."""
    principal = Principal(name[:64], "viewer", source="session", peer=peer_of(request.scope))
    return Actor(principal, request.scope["state"]["request_id"])


async def begin(context: Context, request: Request, name: str, password: str) -> tuple[str, User]:
    """Log in, and have it written down.

    Raises:
        Refused, ApiError: refused.
    """
    check_origin(request.headers)
    found = await context.identity.login(name, password, actor_of(request, name))
    await drain(context)
    return found


async def drain(context: Context) -> None:
    """Bring records of changes made in this process into the log.

    A broker that does not answer takes them later: they wait in ``identity.db``.
    """
    try:
        await context.admin.call(DrainAudit())
    except Refused as error:
        context.report("http.audit_waits", reason=error.message)


async def end(context: Context, request: Request) -> None:
    """Log out."""
    presented = cookie_of(request.scope)
    if presented:
        await context.identity.logout(presented)


def with_cookie(identity: Identity, request: Request, response: Response, presented: str) -> None:
    """Give the browser its login; an empty one is taken back."""
    seconds = identity.login_total_s if presented else 0
    response.headers["Set-Cookie"] = login_cookie(request.scope, presented, seconds=seconds)


def routes(context: Context) -> list[WebRoute]:
    """The routes of this file."""

    def logged_in(request: Request, presented: str, user: User) -> Response:
        body: dict[str, Any] = {
            "name": user.name,
            "role": user.role,
            "csrf_token": csrf_token(presented),
        }
        response = json_response(body)
        with_cookie(context.identity, request, response, presented)
        return response

    async def login(request: Request) -> Response:
        asked = await read_json(request, LoginRequest)
        presented, user = await begin(context, request, asked.name, asked.password)
        return logged_in(request, presented, user)

    async def setup(request: Request) -> Response:
        check_origin(request.headers)
        asked = await read_json(request, SetupRequest)
        actor = actor_of(request, asked.name)
        presented, user = await context.identity.redeem(
            asked.token, asked.name, asked.password, actor
        )
        await drain(context)
        return logged_in(request, presented, user)

    async def logout(request: Request) -> Response:
        await end(context, request)
        response = json_response({"action": "logged_out"})
        with_cookie(context.identity, request, response, "")
        return response

    async def me(request: Request) -> Response:
        principal = principal_of(request)
        presented = cookie_of(request.scope) if principal.source == "session" else ""
        return json_response(
            {
                "name": principal.name,
                "role": principal.role,
                "source": principal.source,
                "scopes": list(principal.scopes),
                "csrf_token": csrf_token(presented) if presented else None,
            }
        )

    return [
        WebRoute(method="POST", path=f"{API}/login", endpoint=login, right=None),
        WebRoute(method="POST", path=f"{API}/setup", endpoint=setup, right=None),
        WebRoute(method="POST", path=f"{API}/logout", endpoint=logout, operation="login.end"),
        WebRoute(
            method="GET",
            path=f"{API}/me",
            endpoint=me,
            operation="login.show",
            is_about_asker=True,
        ),
    ]
