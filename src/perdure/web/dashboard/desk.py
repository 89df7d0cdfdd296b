"""What the pages share: how one asks the broker, and how a refusal looks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.operation import Page
from perdure.admin.operation import Request as Asked
from perdure.admin.problems import CODES, Refused
from perdure.admin.rights import Role
from perdure.admin.table import operation_of
from perdure.web.context import Context
from perdure.web.dashboard.render import Renderer
from perdure.web.principals import principal_of
from perdure.web.routing import WebRoute

R = TypeVar("R")

P = TypeVar("P", bound=Page[Any])

LOGIN_PATH: Final = "/ui/login"

FURTHER_S: Final = 1.5
"""How long a list is gone through for the first item that is wanted, before it is asked whether to
look further."""

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


@final
class Desk:
    """The context of the pages.

    Args:
        context: of the process.
        renderer: of the templates.
    """

    def __init__(self, context: Context, renderer: Renderer) -> None:
        self.context = context
        self.renderer = renderer

    async def ask(self, request: Request, asked: Asked[R]) -> R:
        """The result of an operation, on behalf of whoever looks at the page.

        Raises:
            Refused: as the API does.
        """
        operation = operation_of(type(asked))
        raw = await self.context.admin.ask(
            operation.name,
            msgspec.json.encode(asked),
            principal_of(request),
            request.scope["state"]["request_id"],
        )
        result: R = msgspec.json.decode(raw, type=operation.result)
        return result

    async def look(self, request: Request, asked: Asked[P]) -> P:
        """The first page of a list that has an item, or the last that there was time for: each is
        bounded work of the broker, and whoever looks for one item wants to see it.

        Raises:
            Refused: as the API does.
        """
        until_s = time.monotonic() + FURTHER_S
        page = await self.ask(request, asked)
        while not page.items and page.next_cursor is not None and time.monotonic() < until_s:
            asked = msgspec.structs.replace(asked, cursor=page.next_cursor)
            page = await self.ask(request, asked)
        return page

    def page(self, request: Request, template: str, **values: Any) -> Response:
        """A page for whoever has passed the guard."""
        return self.renderer.page(request, template, principal=principal_of(request), **values)

    def route(self, path: str, endpoint: Endpoint, *, right: Role = "viewer") -> WebRoute:
        """The route of a page; what is refused is a page too, unless a script asks."""

        async def answered(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Refused as error:
                if is_part(request):
                    raise
                problem = error.problem
                return self.page(
                    request,
                    "error.html",
                    status=CODES[problem.code].status if problem.code in CODES else 500,
                    problem=problem,
                    request_id=request.scope["state"]["request_id"],
                    current="",
                )

        return WebRoute(
            method="GET",
            path=path,
            endpoint=answered,
            right=right,
            operation=f"dashboard.{path.rpartition('/')[2] or 'overview'}",
            on_unauthorized=LOGIN_PATH,
        )


def is_part(request: Request) -> bool:
    """Whether a script of a page asks for a part of it."""
    return request.headers.get("hx-request") == "true"
