"""Templates to answers: what every page has, and the headers that keep it to itself."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.rights import Principal, Role, may
from perdure.identity.logins import csrf_token
from perdure.web.credentials import cookie_of
from perdure.web.dashboard import formats
from perdure.web.dashboard.assets import Asset, compressed

TEMPLATES: Final = Path(__file__).parent / "templates"

CONNECT_SELF: Final = "connect-src 'self'"

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    f"{CONNECT_SELF}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and no script or style within a page."""

KEPT_STATE: Final = "is_kept"
"""In the state of a request: it is a part of a page that is kept up to date."""

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@final
class NavItem(msgspec.Struct, frozen=True):
    """An entry of the navigation.

    Attributes:
        name: of its pages.
        path: of the first one.
        label: as it is shown.
        key: that goes there, after ``g``.
        right: the least role that sees it.
    """

    name: str
    path: str
    label: str
    key: str
    right: Role = "viewer"


NAV: Final = (
    ("Now", (
        NavItem("overview", "/ui/", "Overview", "o"),
        NavItem("sessions", "/ui/sessions", "Sessions", "s"),
        NavItem("subscriptions", "/ui/subscriptions", "Subscriptions", "u"),
        NavItem("shared", "/ui/shared", "Shared groups", "h"),
    )),
    ("Watch", (
        NavItem("alarms", "/ui/alarms", "Alarms", "w"),
        NavItem("slow", "/ui/slow", "Slow subscribers", "t"),
        NavItem("traces", "/ui/traces", "Traces", "x", "operator"),
        NavItem("client", "/ui/client", "Test client", "k"),
    )),
    ("Kept", (
        NavItem("storage", "/ui/storage", "Storage", "l"),
        NavItem("messages", "/ui/messages", "Messages", "m"),
        NavItem("retained", "/ui/retained", "Retained", "r"),
    )),
    ("Goes on to", (
        NavItem("pipelines", "/ui/pipelines", "Pipelines", "j"),
        NavItem("forwarders", "/ui/forwarders", "Forwarders", "f"),
        NavItem("applications", "/ui/applications", "Applications", "i"),
        NavItem("filters", "/ui/filters", "Content filters", "v"),
    )),
    ("Access", (
        NavItem("access", "/ui/access", "Users and keys", "a", "admin"),
        NavItem("audit", "/ui/audit", "Audit", "d", "admin"),
        NavItem("clients", "/ui/clients", "Clients' access", "e", "operator"),
        NavItem("tokens", "/ui/tokens", "Tokens", "y", "operator"),
        NavItem("bans", "/ui/bans", "Kept out", "b"),
    )),
    ("Broker", (
        NavItem("nodes", "/ui/nodes", "Nodes", "n"),
        NavItem("config", "/ui/config", "Configuration", "c"),
    )),
)  # fmt: skip


@final
class Renderer:
    """Renders the templates.

    Args:
        assets: by name.
        version: release.
    """

    def __init__(self, assets: Mapping[str, Asset], version: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            number=formats.number,
            rate=formats.rate,
            size=formats.size,
            span=formats.span,
            segment=formats.segment,
            argument=formats.argument,
            sentence=formats.sentence,
            quoted=shlex.quote,
        )
        self._environment.globals.update(
            nav=NAV,
            version=version,
            query=formats.query,
            options=formats.options,
            asset=lambda name: assets[name].url,
        )

    def page(
        self,
        request: Request,
        template: str,
        *,
        principal: Principal | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> Response:
        """A page, or a part of one.

        Args:
            request: that it answers.
            template: its file.
            principal: who looks at it; None = nobody that is known.
            status: of the answer.
            headers: beside those of all pages.
            values: of the template.
        """
        now_us = time.time_ns() // 1000
        # What is sent if it differs has no words that differ with each second: the page has them.
        is_kept = bool(request.scope.get("state", {}).get(KEPT_STATE))
        presented = cookie_of(request.scope) if principal is not None else ""
        text = self._environment.get_template(template).render(
            principal=principal,
            may=lambda right: principal is not None and may(principal, right, ""),
            csrf=csrf_token(presented) if presented else "",
            now_us=now_us,
            when=lambda at_us: formats.moment(at_us, now_us, has_words=not is_kept),
            request_path=request.scope["path"],
            request_query=request.query_params,
            is_part=request.headers.get("hx-request") == "true",
            **values,
        )
        body, extra = compressed(request, text.encode())
        return Response(
            body,
            status,
            headers={**HEADERS, **extra, **(headers or {})},
            media_type="text/html; charset=utf-8",
        )
