"""Around every request: its route, who sent it, its name and count, an answer whatever happens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, final
from urllib.parse import quote, unquote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perdure.errors import PerdureError
from perdure.pipeline.protocol import API, LOG_PATH, Problem
from perdure.web.admission import check_may_have
from perdure.web.context import Context
from perdure.web.forwarded import Forwarded
from perdure.web.problems import CODES, ApiError, answer, as_problem
from perdure.web.routing import Found, RouteTable, WebRoute
from perdure.web.traffic import CUT, GONE, METHODS, OTHER, Kind

PROBES: Final = frozenset(
    f"{API}/{name}" for name in ("livez", "readyz", "status", "version", "error-codes")
)
"""What tells nothing of messages or clients; a probe that finds the broker away is no refusal."""

READS: Final = frozenset({f"{LOG_PATH}/read"})
"""What is answered with messages."""

ERROR_MAX: Final = 1_000
"""Characters of an error in the log: the broker reads lines of a bounded length."""

RefusalPage: TypeAlias = Callable[[Request, int, Problem], Response | None]
"""Makes a page of status and problem; None = no page is wanted."""

PLACE_MAX: Final = 1_000
"""Characters of the address that a browser goes to after its login."""

PATH_MAX: Final = 200
"""Characters of a path in the log; the query, and all else of the request, is not written."""


@final
class Guard:
    """The outermost application: finds the route, checks who asks, and has it answered.

    Args:
        routes: what is served; anything else is counted as one.
        context: of the process.
        page: a refusal as a page, for whoever wants one; None = there are no pages.
    """

    def __init__(
        self, routes: Iterable[WebRoute], context: Context, *, page: RefusalPage | None = None
    ) -> None:
        self._table = RouteTable(routes)
        self._context = context
        self._page = page
        self._forwarded = Forwarded(context.settings.proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count it."""
        if scope["type"] != "http":
            return
        _to_origin_form(scope)
        self._forwarded.settle(scope)
        answering = _Answering(self._context, scope, send)
        try:
            await self._answer(answering, receive)
        except BaseException:
            answering.ended(CUT)
            raise
        answering.ended()

    async def _answer(self, answering: _Answering, receive: Receive) -> None:
        scope = answering.scope
        try:
            found = await self._admit(answering)
            scope["path_params"] = found.params
            response = await found.route.endpoint(Request(scope, receive))
            await response(scope, receive, answering.send)
        except ClientDisconnect:
            return
        except Exception as error:
            if answering.status:
                # Only a connection that is cut tells a client now that something is missing.
                self._context.report(
                    "http.cut", request_id=answering.name, error=repr(error)[:ERROR_MAX]
                )
                raise
            await self._refuse(answering, receive, error)

    async def _refuse(self, answering: _Answering, receive: Receive, error: Exception) -> None:
        scope = answering.scope
        status, problem = self._problem(error, answering.name)
        elsewhere = answering.found.route.on_unauthorized if answering.found is not None else ""
        if status == CODES["unauthorized"] and elsewhere:
            # A browser without a login, or whose login has ended: nothing to look at.
            response = Response(b"", 303, headers={"Location": elsewhere + _back_to(scope)})
        else:
            self._report(scope, status, problem, answering.name)
            problem = msgspec.structs.replace(problem, request_id=answering.name)
            allow = error.allow if isinstance(error, ApiError) else ()
            page = self._page(Request(scope), status, problem) if self._page is not None else None
            response = page or answer(status, problem, allow=allow)
        await response(scope, receive, answering.send)

    async def _admit(self, answering: _Answering) -> Found:
        """The route of a request, once it is clear that whoever sent it may have it.

        Raises:
            ApiError: nothing is there, or it is not for this one.
        """
        scope, missing = answering.scope, None
        state = scope.setdefault("state", {})
        state["request_id"] = answering.name
        try:
            # The path as it was sent. The URL of a request has the Host header in it, which a
            # client can write so that it seems to ask for another path (CVE-2026-48710).
            answering.found = self._table.find(scope["method"], scope.get("raw_path") or b"")
        except ApiError as error:
            missing = error
        found = answering.found
        if found is not None and found.route.right is None:
            return found
        if state.get("is_reserve"):
            raise ApiError(
                "busy", "all connections are being answered", hint="see http.connections_max"
            )
        # Who is not known is not told either what there is.
        principal = state["principal"] = await self._context.principals.resolve(scope)
        if missing is not None:
            raise missing
        if found is None:
            raise ApiError("not_found", "there is no such resource")
        check_may_have(principal, found.route)
        return found

    def _report(self, scope: Scope, status: int, problem: Problem, name: str) -> None:
        """One line for each refusal. A probe that finds the broker away is none."""
        path: str = scope["path"]
        if path in PROBES and status == CODES["not_ready"]:
            return
        client = scope.get("client")
        self._context.report(
            "http.refused",
            peer=client[0] if client else "",
            method=scope["method"] if scope["method"] in METHODS else OTHER,
            path=path[:PATH_MAX],
            status=status,
            code=problem.code,
            request_id=name,
        )

    def _problem(self, error: Exception, name: str) -> tuple[int, Problem]:
        if isinstance(error, PerdureError):
            status, problem = as_problem(error)
            if status == CODES["internal"]:
                self._context.report("http.failed", request_id=name, error=error.message)
            return status, problem
        self._context.report("http.failed", request_id=name, error=repr(error)[:ERROR_MAX])
        return 500, Problem("internal", "a defect of the server; its log has more")


def _back_to(scope: Scope) -> str:
    """The query that has a login lead back; a part of a page is no place to be."""
    raw: bytes = scope.get("raw_path") or b""
    place = raw + b"?" + scope["query_string"] if scope["query_string"] else raw
    if scope["method"] != "GET" or "hx-request" in Headers(scope=scope) or len(place) > PLACE_MAX:
        return ""
    return f"?next={quote(place, safe='/')}"


def _to_origin_form(scope: Scope) -> None:
    """Take the path of ``GET http://host/path``; every server must accept it (RFC 9112 3.2.2)."""
    raw: bytes = scope.get("raw_path") or b""
    scheme, separator, rest = raw.partition(b"://")
    if separator and scheme.lower() in (b"http", b"https"):
        path = b"/" + rest.partition(b"/")[2]
        scope["raw_path"], scope["path"] = path, unquote(path.decode("ascii"))


@final
class _Answering:
    """One request and what was sent for it.

    Attributes:
        scope: of the request.
        name: its identifier.
        status: of the answer; 0 = it was not begun.
        found: its route; None = there is none.
    """

    def __init__(self, context: Context, scope: Scope, send: Send) -> None:
        self._traffic = context.traffic
        self._send = send
        self._begun_ns = time.monotonic_ns()
        self._is_complete = False
        self.found: Found | None = None
        self.scope = scope
        self.name = secrets.token_hex(8)
        self.status = 0
        self._traffic.begun()

    @property
    def _route(self) -> str:
        return OTHER if self.found is None else self.found.route.path.removeprefix(API)

    async def send(self, message: Message) -> None:
        """Send a part of the answer: the head gets the request's name, bodies are counted."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            head = (b"x-request-id", self.name.encode())
            message["headers"] = [*message.get("headers", ()), head]
        await self._send(message)
        if message["type"] == "http.response.body":
            body = message.get("body", b"")
            if body:
                self._traffic.sent(self._route, len(body))
            self._is_complete = not message.get("more_body", False)

    def ended(self, status: str = "") -> None:
        """Count it.

        Args:
            status: what it came to; empty = what was sent.
        """
        if not status:
            status = str(self.status) if self._is_complete else CUT if self.status else GONE
        path: str = self.scope["path"]
        kind: Kind = "probe" if path in PROBES else "read" if path in READS else "query"
        self._traffic.ended(
            self._route,
            self.scope["method"],
            status,
            kind=kind,
            elapsed_us=(time.monotonic_ns() - self._begun_ns) // 1000,
        )
