"""The application: all routes behind the guard."""

from __future__ import annotations

from starlette.routing import Router

from perdure.web.context import Context
from perdure.web.guard import Guard
from perdure.web.routes import health, log


def make_app(context: Context) -> Guard:
    """Everything that is served."""
    routes = [*health.routes(context), *log.routes(context)]
    router = Router(routes, redirect_slashes=False)
    return Guard(router, context, paths=[route.path for route in routes])
