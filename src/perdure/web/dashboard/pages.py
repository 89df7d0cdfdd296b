"""All pages, and how a refusal of the guard looks to whoever opens one."""

from __future__ import annotations

from typing import final

from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.problems import Problem as Shown
from perdure.pipeline.protocol import Problem
from perdure.web.context import Context
from perdure.web.dashboard.access import access_routes
from perdure.web.dashboard.assets import asset_routes, load_assets
from perdure.web.dashboard.desk import LOGIN_PATH, Desk, is_part
from perdure.web.dashboard.flows import flow_routes
from perdure.web.dashboard.live import live_routes
from perdure.web.dashboard.login import HOME, login_routes, to_path
from perdure.web.dashboard.messages import message_routes
from perdure.web.dashboard.overview import overview_routes
from perdure.web.dashboard.render import Renderer
from perdure.web.dashboard.sessions import session_routes
from perdure.web.dashboard.settings import setting_routes
from perdure.web.dashboard.storage import storage_routes
from perdure.web.dashboard.testclient import client_routes
from perdure.web.dashboard.topics import topic_routes
from perdure.web.dashboard.traces import trace_routes
from perdure.web.dashboard.watch import watch_routes
from perdure.web.problems import CODES
from perdure.web.routing import WebRoute


@final
class Dashboard:
    """Everything below ``/ui``.

    Args:
        context: of the process.

    Attributes:
        routes: of the pages.
    """

    def __init__(self, context: Context) -> None:
        assets = load_assets()
        self._renderer = Renderer(assets, context.settings.version)
        desk = Desk(context, self._renderer)
        pages = [
            *overview_routes(desk),
            *session_routes(desk),
            *topic_routes(desk),
            *watch_routes(desk),
            *trace_routes(desk),
            *client_routes(desk),
            *flow_routes(desk),
            *storage_routes(desk),
            *message_routes(desk),
            *access_routes(desk),
            *setting_routes(desk),
        ]
        self.routes: list[WebRoute] = [
            *asset_routes(assets),
            *login_routes(context, self._renderer),
            *live_routes(context, pages),
            *pages,
        ]

    def refusal(self, request: Request, status: int, problem: Problem) -> Response | None:
        """The page for what the guard has refused; None = whoever asks wants no page.

        A page that refuses by itself (``Desk.route``) looks the same.
        """
        path: str = request.scope["path"]
        wants_page = "text/html" in request.headers.get("accept", "") and not is_part(request)
        if not path.startswith(HOME) or request.method != "GET" or not wants_page:
            return None
        if status == CODES["unauthorized"]:
            return to_path(LOGIN_PATH)
        principal = request.scope["state"].get("principal")
        if principal is None:
            return None
        is_forbidden = status == CODES["forbidden"]
        message = "you may not have this page" if is_forbidden else problem.message
        return self._renderer.page(
            request,
            "error.html",
            principal=principal,
            status=status,
            problem=Shown(problem.code, message, str(problem.details.get("hint", ""))),
            request_id=request.scope["state"]["request_id"],
            current="",
        )
