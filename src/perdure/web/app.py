"""The application: all routes behind the guard."""

from __future__ import annotations

from perdure.web.context import Context
from perdure.web.dashboard.pages import Dashboard
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
    dashboard = Dashboard(context)
    return Guard(all_routes(context, dashboard), context, page=dashboard.refusal)


def all_routes(context: Context, dashboard: Dashboard | None = None) -> list[WebRoute]:
    """Everything that is served, with the right that each asks for."""
    return [
        *health.routes(context),
        *log.routes(context),
        *administration.routes(context),
        *login.routes(context),
        *checkpoint.routes(context),
        *(dashboard or Dashboard(context)).routes,
        *live.routes(context),
        *description.routes(context),
    ]
