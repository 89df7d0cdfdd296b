"""Around every request: its token, its name, its count, and an answer whatever goes wrong in it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Final, final
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.errors import PerdureError
from perdure.pipeline.protocol import API, LOG_PATH, Problem
from perdure.web.context import Context
from perdure.web.problems import CODES, ApiError, answer, as_problem
from perdure.web.traffic import CUT, GONE, METHODS, OTHER, Kind

OPEN_PATHS: Final = frozenset(
    f"{API}/{name}" for name in ("livez", "readyz", "version", "error-codes")
)
"""What is answered without a token: it tells nothing of messages or clients."""


READS: Final = frozenset({f"{LOG_PATH}/read"})
"""What is answered with messages."""

ERROR_MAX: Final = 1_000
"""Characters of an error in the log: the broker reads lines of a bounded length."""

PATH_MAX: Final = 200
"""Characters of a path in the log; the query, and all else of the request, is not written."""


@final
class Guard:
    """The outermost application.

    Args:
        inner: what answers.
        context: of the process.
        paths: what is served; anything else is counted as one.
    """

    def __init__(self, inner: ASGIApp, context: Context, *, paths: Iterable[str] = ()) -> None:
        self._inner = inner
        self._context = context
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count it."""
        if scope["type"] != "http":
            return
        _to_origin_form(scope)
        # Starlette's routes raise, instead of answering by themselves, inside an application.
        scope["app"] = self
        answering = _Answering(self._context, scope, self._route(scope["path"]), send)
        try:
            await self._answer(answering, receive)
        except BaseException:
            answering.ended(CUT)
            raise
        answering.ended()

    def _route(self, path: str) -> str:
        return path.removeprefix(API) if path in self._paths else OTHER

    async def _answer(self, answering: _Answering, receive: Receive) -> None:
        scope = answering.scope
        try:
            self._check(scope)
            await self._inner(scope, receive, answering.send)
        except ClientDisconnect:
            return
        except Exception as error:
            if answering.status:
                # Only a connection that is cut tells a client now that something is missing.
                self._context.report(
                    "http.cut", request_id=answering.name, error=repr(error)[:ERROR_MAX]
                )
                raise
            status, problem = self._problem(error, answering.name)
            self._report(scope, status, problem, answering.name)
            problem = msgspec.structs.replace(problem, request_id=answering.name)
            await answer(status, problem)(scope, receive, answering.send)

    def _check(self, scope: Scope) -> None:
        # The path that the routes go by. The URL of a request has the Host header in it, which a
        # client can write so that it seems to ask for another path (CVE-2026-48710).
        if scope["path"] in OPEN_PATHS:
            return
        if scope.get("state", {}).get("is_reserve"):
            raise ApiError(
                "busy", "all connections are being answered", hint="see http.connections_max"
            )
        tokens = self._context.tokens
        if tokens.knows(Headers(scope=scope).get("authorization", "")):
            return
        if tokens.problem:
            self._context.report("http.token_file_unreadable", reason=tokens.problem)
        raise ApiError(
            "unauthorized",
            "this needs a token: Authorization: Bearer TOKEN",
            hint="http.token_file holds the tokens",
        )

    def _report(self, scope: Scope, status: int, problem: Problem, name: str) -> None:
        """One line for each refusal. A probe that finds the broker away is none."""
        path: str = scope["path"]
        if path in OPEN_PATHS and status == CODES["not_ready"]:
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
        if isinstance(error, HTTPException):
            code = "method_not_allowed" if error.status_code == 405 else "not_found"
            text = "there is no such resource" if code == "not_found" else "not with this method"
            return as_problem(ApiError(code, text))
        if isinstance(error, PerdureError):
            status, problem = as_problem(error)
            if status == CODES["internal"]:
                self._context.report("http.failed", request_id=name, error=error.message)
            return status, problem
        self._context.report("http.failed", request_id=name, error=repr(error)[:ERROR_MAX])
        return 500, Problem("internal", "a defect of the server; its log has more")


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
    """

    def __init__(self, context: Context, scope: Scope, route: str, send: Send) -> None:
        self._traffic = context.traffic
        self._route = route
        self._send = send
        self._begun_ns = time.monotonic_ns()
        self._is_complete = False
        self.scope = scope
        self.name = secrets.token_hex(8)
        self.status = 0
        self._traffic.begun()

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
        kind: Kind = "probe" if path in OPEN_PATHS else "read" if path in READS else "query"
        self._traffic.ended(
            self._route,
            self.scope["method"],
            status,
            kind=kind,
            elapsed_us=(time.monotonic_ns() - self._begun_ns) // 1000,
        )
