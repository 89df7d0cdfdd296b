"""All pages."""

from __future__ import annotations

from perdure.web.context import Context
from perdure.web.dashboard.access import access_routes
from perdure.web.dashboard.assets import asset_routes, load_assets
from perdure.web.dashboard.desk import Desk
from perdure.web.dashboard.flows import flow_routes
from perdure.web.dashboard.live import live_routes
from perdure.web.dashboard.login import login_routes
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
from perdure.web.routing import WebRoute


def dashboard_routes(context: Context) -> list[WebRoute]:
    """Everything below ``/ui``."""
    assets = load_assets()
    renderer = Renderer(assets, context.settings.version)
    desk = Desk(context, renderer)
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
    return [
        *asset_routes(assets),
        *login_routes(context, renderer),
        *live_routes(context, pages),
        *pages,
    ]
