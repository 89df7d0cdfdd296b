"""A client of MQTT in the page: where it may connect to, and the policy that lets it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.listeners import ListenerRow, ListListeners
from perdure.web.dashboard.desk import Desk
from perdure.web.dashboard.forms import given
from perdure.web.dashboard.render import CONNECT_SELF, HEADERS
from perdure.web.routing import WebRoute

SCHEMES: Final = {"ws": "ws", "wss": "wss"}
HERE: Final = frozenset(("0.0.0.0", "::", "127.0.0.1", "::1"))  # noqa: S104 - compared, not bound
"""Addresses that are reached by the name by which the page was."""

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_PATH: Final = re.compile(r"[A-Za-z0-9._~/-]*")


@final
class Endpoint(msgspec.Struct, frozen=True):
    """Where a browser finds a listener.

    Attributes:
        url: of its WebSocket.
        listener: its name.
    """

    url: str
    listener: str


def endpoints(listeners: Sequence[ListenerRow], host: str) -> list[Endpoint]:
    """Listeners that a page can reach; ``host`` is where the browser has it from.

    A policy cannot name an address of IPv6, so what has no other is left out.
    """
    found = []
    for each in listeners:
        scheme = SCHEMES.get(each.kind)
        if scheme is None or not _PATH.fullmatch(each.path):
            continue
        for address in each.addresses:
            name, _, port = address.rpartition(":")
            name = host if name.strip("[]") in HERE else name
            if _HOST.fullmatch(name):
                found.append(Endpoint(f"{scheme}://{name}:{port}{each.path}", each.name))
    unique = {each.url: each for each in found}
    return list(unique.values())


def client_routes(desk: Desk) -> list[WebRoute]:
    """The page."""

    async def client(request: Request) -> Response:
        listeners = (await desk.ask(request, ListListeners())).items
        found = endpoints(listeners, request.url.hostname or "")
        sources = " ".join(each.url.rpartition("/")[0] for each in found)
        policy = HEADERS["Content-Security-Policy"]
        return desk.page(
            request,
            "client.html",
            current="client",
            endpoints=found,
            wanted=given(request, "topic", "filter"),
            headers={
                "Content-Security-Policy": policy.replace(
                    CONNECT_SELF, f"{CONNECT_SELF} {sources}".rstrip()
                )
            },
        )

    return [desk.route("/ui/client", client)]
