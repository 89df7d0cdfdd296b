"""Sessions: the list, and everything about one."""

from __future__ import annotations

import asyncio
from typing import Any, Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.explain import ExplainSession
from perdure.admin.records.session_parts import ListAwaitingRelease, ListInflight, ListPending
from perdure.admin.records.sessions import GetSession, ListSessions, SessionDetail
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

LIMITS: Final = (25, 50, 100, 250)
STATES: Final = ("connected", "offline", "expired")
ORDERS: Final = {
    "-changed_at": "changed last",
    "changed_at": "changed longest ago",
    "-created_at": "newest",
    "created_at": "oldest",
    "-dropped_count": "most dropped",
    "-subscription_count": "most subscriptions",
    "state": "state",
}
"""Beside that of client ids."""
HELD: Final = 20
"""Messages of each list on a session's page."""


@final
class Waiting(msgspec.Struct, frozen=True):
    """Why a session is given nothing more just now.

    Attributes:
        kind: ``ok``, ``wait`` or ``stop``.
        title: in a few words.
        text: in a sentence.
    """

    kind: str
    title: str
    text: str


def waiting_of(session: SessionDetail) -> Waiting:
    """The next thing that a session waits for."""
    live, owed = session.live, session.owed_messages
    if session.state == "expired":
        return Waiting("stop", "expired", "The session has expired and is about to be deleted.")
    if live is None:
        if not owed:
            return Waiting(
                "wait", "offline, nothing owed", "The client is away and misses nothing."
            )
        return Waiting(
            "wait",
            "waits for the client",
            "The client is away. What it is owed is kept, in order, until it comes back.",
        )
    if live.paused:
        return Waiting(
            "stop",
            "socket full",
            "The client's connection takes no more bytes: its network or the client is slow.",
        )
    oldest = session.oldest_unacknowledged
    if live.inflight >= live.inflight_max:
        what = f"{oldest.awaits} for packet {oldest.packet_id}" if oldest else "an acknowledgement"
        return Waiting(
            "stop",
            "window full",
            f"As many messages are on their way as the client takes at once. It owes {what}.",
        )
    if live.catching_up:
        return Waiting(
            "wait", "catching up", "The client reads what was recorded while it was away."
        )
    if live.inflight:
        return Waiting("ok", "on their way", "Messages were sent and wait to be acknowledged.")
    return Waiting("ok", "up to date", "Everything was delivered and acknowledged.")


def session_routes(desk: Desk) -> list[WebRoute]:
    """The list, one session, and why a message reaches it or not."""

    async def sessions(request: Request) -> Response:
        asked, filters = _filters(request)
        page = await desk.look(request, asked)
        template = "sessions_rows.html" if is_part(request) else "sessions.html"
        return desk.page(
            request,
            template,
            current="sessions",
            page=page,
            filters=filters,
            limits=LIMITS,
            states=STATES,
            orders=ORDERS,
        )

    async def session(request: Request) -> Response:
        client_id = request.path_params["client_id"]
        found = await desk.ask(request, GetSession(client_id=client_id))
        told = {"session": found, "waiting": waiting_of(found)}
        if is_part(request):
            return desk.page(request, "delivery.html", current="sessions", **told)
        told |= await _held(desk, request)
        return desk.page(request, "session.html", current="sessions", **told)

    async def held(request: Request) -> Response:
        return desk.page(request, "held.html", current="sessions", **await _held(desk, request))

    async def explain(request: Request) -> Response:
        topic = request.query_params.get("topic", "")
        if not topic:
            raise ApiError("bad_request", "name a topic")
        found = await desk.ask(
            request,
            ExplainSession(client_id=request.path_params["client_id"], topic=topic),
        )
        return desk.page(request, "explain.html", current="sessions", found=found)

    return [
        desk.route("/ui/sessions", sessions),
        desk.route("/ui/sessions/{client_id}", session),
        desk.route("/ui/sessions/{client_id}/explain", explain),
        desk.route("/ui/sessions/{client_id}/held", held),
    ]


async def _held(desk: Desk, request: Request) -> dict[str, Any]:
    """What is on its way to a client, what waits for it, and what it has not released."""
    client_id = request.path_params["client_id"]
    inflight, pending, awaiting = await asyncio.gather(
        desk.ask(request, ListInflight(client_id=client_id, limit=HELD)),
        desk.ask(request, ListPending(client_id=client_id, limit=HELD)),
        desk.ask(request, ListAwaitingRelease(client_id=client_id, limit=HELD)),
    )
    return {
        "client_id": client_id,
        "inflight": inflight,
        "pending": pending,
        "awaiting": awaiting,
    }


def _filters(request: Request) -> tuple[ListSessions, dict[str, Any]]:
    """What is asked for, and the same as it stands in the URL."""
    given = request.query_params
    limit = given.get("limit", "")
    state, sort = given.get("state", ""), given.get("sort", "")
    filters = {
        "client_id": given.get("client_id", ""),
        "match": "prefix" if given.get("match") == "prefix" else "",
        "username": given.get("username", ""),
        "state": state if state in STATES else "",
        "sort": sort if sort in ORDERS else "",
        "limit": int(limit) if limit in map(str, LIMITS) else "",
    }
    fields: dict[str, Any] = {"limit": filters["limit"] or 50, "cursor": given.get("cursor", "")}
    if filters["client_id"]:
        fields["prefix" if filters["match"] else "client_id~"] = filters["client_id"]
    if filters["sort"]:
        fields["sort"] = filters["sort"]
    if filters["username"]:
        fields["username"] = filters["username"]
    if filters["state"] == "connected":
        fields["connected"] = True
    elif filters["state"]:
        fields["state"] = filters["state"]
    try:
        return msgspec.convert(fields, ListSessions), filters
    except msgspec.ValidationError as error:
        raise ApiError("bad_request", str(error)) from error
