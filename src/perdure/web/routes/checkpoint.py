"""``/cluster/checkpoint``: the state of this node, for one that joins."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Final, final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.backup.fetching import PATH
from perdure.backup.stream import MEDIA_TYPE, checkpoint_stream
from perdure.clock import SystemClock
from perdure.config.schema import RocksdbConfig
from perdure.web.context import Context
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

AT_ONCE_MAX: Final = 1
"""Checkpoints of each process: each pins the files that it links, and reads all of them."""


def routes(context: Context) -> list[WebRoute]:
    """The routes of this file."""
    handler = CheckpointHandler(context)
    return [
        WebRoute(
            method="GET",
            path=PATH,
            endpoint=handler.stream,
            right="admin",
            operation="cluster.checkpoint",
        )
    ]


@final
class CheckpointHandler:
    """Streams checkpoints, one at a time.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Semaphore(AT_ONCE_MAX)

    async def stream(self, _request: Request) -> Response:
        """The checkpoint as a tar; see ``backup.stream``."""
        if self._turn.locked():
            raise ApiError("busy", "another checkpoint is being sent", hint="try again when it is")
        await self._turn.acquire()
        settings = self._context.settings
        pieces = checkpoint_stream(
            Path(settings.data),
            config=RocksdbConfig(),
            version=settings.version,
            now_us=SystemClock().now_us(),
        )
        try:
            # What is wrong with it is an error that a client can read, not a cut connection.
            first = await self._context.in_thread(lambda: next(pieces, b""))
        except BaseException:
            self._turn.release()
            raise
        return _Checkpoint(self._context, self._turn, pieces, first)


@final
class _Checkpoint(Response):
    """Sends the pieces; a client that takes nothing for too long is cut off."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        context: Context,
        turn: asyncio.Semaphore,
        pieces: Generator[bytes, None, None],
        first: bytes,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store"}, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._context = context
        self._turn = turn
        self._pieces = pieces
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until all is sent or the client has gone."""
        gone = asyncio.create_task(_gone(receive))
        start = {"status": self.status_code, "headers": self.raw_headers}
        try:
            await send({"type": "http.response.start", **start})
            piece = self._first
            while not gone.done():
                async with asyncio.timeout(self._context.settings.send_timeout_s):
                    await send(
                        {"type": "http.response.body", "body": piece, "more_body": bool(piece)}
                    )
                if not piece:
                    break
                piece = await self._context.in_thread(self._next)
        finally:
            gone.cancel()
            await asyncio.shield(self._finish())

    def _next(self) -> bytes:
        """The next piece that is not empty: an empty one is the end."""
        return next((piece for piece in self._pieces if piece), b"")

    async def _finish(self) -> None:
        try:
            await self._context.in_thread(self._pieces.close)
        finally:
            self._turn.release()


async def _gone(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
