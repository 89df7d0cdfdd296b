"""The application: all routes behind the guard."""

from __future__ import annotations

from perdure.web.context import Context
from perdure.web.dashboard.pages import dashboard_routes
from perdure.web.guard import Guard
from perdure.web.routes import (
    administration,
    checkpoint,
    description,
    health,
    live,
    log,
    login,
)
from perdure.web.routing import WebRoute


def make_app(context: Context) -> Guard:
    """Everything that is served, behind the guard."""
    return Guard(all_routes(context), context)


def all_routes(context: Context) -> list[WebRoute]:
    """Everything that is served, with the right that each asks for."""
    return [
        *health.routes(context),
        *log.routes(context),
        *administration.routes(context),
        *login.routes(context),
        *checkpoint.routes(context),
        *dashboard_routes(context),
        *live.routes(context),
        *description.routes(context),
    ]
