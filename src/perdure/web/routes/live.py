"""``/live``: numbers and events as they come, as server-sent events; and ``/metrics``.

One task asks the broker for all who listen, so that a hundred open pages cost it what one does.
Who has lost the right to listen is not sent the next event, and is cut off. Who was refused is told
to those alone who may ask for it (``unauthorized.list``): the stream is narrowed as a key is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.admin.problems import Refused
from perdure.admin.records.listeners import ListUnauthorized
from perdure.admin.records.node import GetMetrics, GetOverview
from perdure.admin.rights import may
from perdure.admin.table import operation_of
from perdure.pipeline.protocol import API
from perdure.web.context import Context
from perdure.web.principals import principal_of
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

INTERVAL_S: Final = 2.0
LISTENERS_MAX: Final = 256
"""Streams of one process."""

QUEUE_MAX: Final = 8
"""Events that wait for a slow listener; then the oldest is left out."""

REFUSED: Final = operation_of(ListUnauthorized)

REFUSED_MAX: Final = 20
"""Refused clients in one event."""


@final
class Feed:
    """Asks the broker while somebody listens, and hands out what is new.

    Args:
        context: of the process.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queues: dict[asyncio.Queue[bytes], bool] = {}
        """Of each listener, and whether it is told who was refused."""
        self._task: asyncio.Task[None] | None = None
        self._refused_us = 0
        self._last: bytes = b""

    async def listen(self, request: Request) -> AsyncIterator[bytes]:
        """Events for one listener, until it goes or may not listen any more."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MAX)
        self._queues[queue] = may(principal_of(request), REFUSED.right, REFUSED.name)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield b"retry: 3000\n\n"
            if self._last:
                yield self._last
            while True:
                event = await queue.get()
                if not self._may_listen(request):
                    return
                yield event
        finally:
            del self._queues[queue]

    def _may_listen(self, request: Request) -> bool:
        """Whether the credentials of a request still hold."""
        proof = request.scope["state"].get("proof")
        if proof is not None:
            return self._context.identity.holds(proof)
        return self._context.tokens.knows(request.headers.get("authorization", ""))

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._queues) >= LISTENERS_MAX

    async def _run(self) -> None:
        while self._queues:
            try:
                await self._look()
            except Refused as error:
                event = _event("unavailable", msgspec.json.encode(error.problem))
                self._hand_out(event, self._queues)
            await asyncio.sleep(INTERVAL_S)

    async def _look(self) -> None:
        admin = self._context.admin
        overview = await admin.call(GetOverview())
        self._last = _event("overview", msgspec.json.encode(overview))
        self._hand_out(self._last, self._queues)
        refused = await admin.call(ListUnauthorized(limit=REFUSED_MAX))
        fresh = [one for one in refused.items if one.last_at_us > self._refused_us]
        first, self._refused_us = (
            not self._refused_us,
            max([self._refused_us, overview.as_of_us, *(one.last_at_us for one in fresh)]),
        )
        if fresh and not first:
            event = _event("refused", msgspec.json.encode(fresh))
            self._hand_out(event, [queue for queue, is_told in self._queues.items() if is_told])

    @staticmethod
    def _hand_out(event: bytes, queues: Iterable[asyncio.Queue[bytes]]) -> None:
        for queue in queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def routes(context: Context) -> list[WebRoute]:
    """The routes of this file."""
    feed = Feed(context)

    async def live(request: Request) -> Response:
        if feed.is_full:
            raise ApiError("busy", f"{LISTENERS_MAX} streams are open already")
        return StreamingResponse(
            feed.listen(request),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def metrics(request: Request) -> Response:
        found = await context.admin.call(GetMetrics(), principal_of(request))
        return Response(found.text, media_type="text/plain; version=0.0.4")

    return [
        WebRoute(method="GET", path=f"{API}/live", endpoint=live, operation="stats.overview"),
        WebRoute(method="GET", path=f"{API}/metrics", endpoint=metrics, operation="stats.metrics"),
    ]
