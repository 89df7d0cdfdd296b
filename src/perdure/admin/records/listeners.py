"""Listeners, and clients that were refused."""

from __future__ import annotations

from typing import Annotated, Final, final

import msgspec
from msgspec import Meta

from perdure.admin.limits import Cursor, Limit
from perdure.admin.operation import Http, Operation, Page, Request

Name = Annotated[str, Meta(min_length=1, max_length=256)]


@final
class ListenerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A listener.

    Attributes:
        name: ``kind:address``.
        kind: tcp, tls, ws or wss.
        addresses: where it listens; none while it is stopped.
        path: of ws and wss; empty = no HTTP is spoken.
        accepting: its sockets are open.
        connections, connections_max: now, and at most.
        opened_total, refused_total, handshake_failures_total: since the start.
    """

    name: str
    kind: str
    addresses: list[str]
    path: str
    accepting: bool
    connections: int
    connections_max: int
    opened_total: int
    refused_total: int
    handshake_failures_total: int


@final
class ListenerPage(Page[ListenerRow], frozen=True, kw_only=True):
    """All listeners."""


class ListListeners(Request[ListenerPage], frozen=True, kw_only=True):
    """All listeners."""


class GetListener(Request[ListenerRow], frozen=True, kw_only=True):
    """One listener."""

    name: Name


class StartListener(Request[ListenerRow], frozen=True, kw_only=True):
    """Listen again, at the same address."""

    name: Name


class StopListener(Request[ListenerRow], frozen=True, kw_only=True):
    """Accept no more; until the next start of the broker, or of the listener.

    Attributes:
        close_connections: those who are connected are disconnected, too.
    """

    name: Name
    close_connections: bool = False


class RestartListener(Request[ListenerRow], frozen=True, kw_only=True):
    """Close the sockets and open them again, with the certificates of now; connections stay."""

    name: Name


@final
class Unauthorized(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who was refused, and why the last time.

    Attributes:
        packet: ``connect``, ``publish``, ``subscribe`` or ``packet``.
        client_id, username: as stated; null = not known.
        address, listener: where it came from.
        reason_code, reason: as the client was told, and for operators.
        topic: topic or filter of the last refusal; null = it was about none.
        count: refusals of this kind since it was first seen.
        first_at, first_at_us, last_at, last_at_us: wall time.
    """

    packet: str
    client_id: str | None
    username: str | None
    address: str
    listener: str
    reason_code: int
    reason: str
    topic: str | None
    count: int
    first_at: str | None
    first_at_us: int
    last_at: str | None
    last_at_us: int


@final
class UnauthorizedPage(Page[Unauthorized], frozen=True, kw_only=True):
    """A page of them, the latest first. The table is bounded: who is refused least lately goes."""


class ListUnauthorized(Request[UnauthorizedPage], frozen=True, kw_only=True):
    """Who was refused lately."""

    limit: Limit = 100
    cursor: Cursor = ""
    packet: Annotated[str, Meta(max_length=20)] = ""


def _on_listener(verb: str, summary: str, request: type[Request[ListenerRow]]) -> Operation:
    return Operation(
        name=f"listeners.{verb}",
        summary=summary,
        request=request,
        result=ListenerRow,
        right="admin",
        changes=True,
        http=Http("POST", f"/listeners/{{name}}:{verb}"),
        target="name",
    )


OPERATIONS: Final = (
    Operation(
        name="listeners.list",
        summary="Listeners",
        request=ListListeners,
        result=ListenerPage,
        http=Http("GET", "/listeners"),
    ),
    Operation(
        name="listeners.show",
        summary="One listener",
        request=GetListener,
        result=ListenerRow,
        http=Http("GET", "/listeners/{name}"),
    ),
    _on_listener("start", "Listen again", StartListener),
    _on_listener("stop", "Accept no more", StopListener),
    _on_listener("restart", "Close and open the sockets; connections stay", RestartListener),
    Operation(
        name="unauthorized.list",
        summary="Clients that were refused lately, with the reason",
        request=ListUnauthorized,
        result=UnauthorizedPage,
        http=Http("GET", "/unauthorized"),
    ),
)
