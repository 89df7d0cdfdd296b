"""Around every request: its token, its name, and an answer whatever goes wrong in it."""

from __future__ import annotations

import secrets
from typing import Final, final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.errors import PerdureError
from perdure.pipeline.protocol import API, Problem
from perdure.web.context import Context
from perdure.web.problems import ApiError, answer, told

OPEN_PATHS: Final = frozenset(
    f"{API}/{name}" for name in ("livez", "readyz", "version", "error-codes")
)
"""What is answered without a token: it tells nothing of messages or clients."""


@final
class Guard:
    """The outermost application.

    Args:
        inner: what answers.
        context: of the process.
    """

    def __init__(self, inner: ASGIApp, context: Context) -> None:
        self._inner = inner
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        # Starlette's routes raise, instead of answering by themselves, inside an application.
        scope["app"] = self
        name = secrets.token_hex(8)
        begun = False

        async def send_named(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                head = (b"x-request-id", name.encode())
                message["headers"] = [*message.get("headers", ()), head]
            await send(message)

        try:
            self._check(Request(scope))
            await self._inner(scope, receive, send_named)
        except ClientDisconnect:
            return
        except Exception as error:
            if begun:
                # Only a connection that is cut tells a client now that something is missing.
                self._context.report("http.cut", request_id=name, error=repr(error))
                raise
            status, problem = self._problem(error, name)
            problem = msgspec.structs.replace(problem, request_id=name)
            await answer(status, problem)(scope, receive, send_named)

    def _check(self, request: Request) -> None:
        if request.url.path in OPEN_PATHS:
            return
        tokens = self._context.tokens
        if tokens.knows(request.headers.get("authorization", "")):
            return
        peer = request.client.host if request.client else ""
        self._context.report("http.refused", peer=peer, path=request.url.path)
        if tokens.problem:
            self._context.report("http.token_file_unreadable", reason=tokens.problem)
        raise ApiError(
            "unauthorized",
            "this needs a token: Authorization: Bearer TOKEN",
            hint="http.token_file holds the tokens",
        )

    def _problem(self, error: Exception, name: str) -> tuple[int, Problem]:
        if isinstance(error, HTTPException):
            code = "method_not_allowed" if error.status_code == 405 else "not_found"
            text = "there is no such resource" if code == "not_found" else "not with this method"
            return told(ApiError(code, text))
        if isinstance(error, PerdureError):
            return told(error)
        self._context.report("http.failed", request_id=name, error=repr(error))
        return 500, Problem("internal", "a defect of the server; its log has more")
